"""What is compiled for the calendar and for nodes on paper, in Python: slower, and to be read."""
