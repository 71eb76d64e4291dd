"""Training of many networks in one program, and watching the training of one."""
