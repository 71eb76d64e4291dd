"""Training of many networks in one program, of one by several processes, and watching the training of one."""
