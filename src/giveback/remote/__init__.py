"""Reading another process. Nothing in here ever changes or stops it."""
