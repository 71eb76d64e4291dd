"""Rules from plain numbers to findings, one family a file. Nothing here needs torch."""
