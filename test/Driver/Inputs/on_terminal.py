"""on_terminal.py COMMAND…: runs a command on a terminal of its own, and prints what it shows, one line for each rewrite."""
import os
import pty
import sys

status = pty.spawn(sys.argv[1:], lambda terminal: os.read(terminal, 4096).replace(b"\r", b"\n"))
sys.exit(os.waitstatus_to_exitcode(status))
