"""Connections from ranks and second clients back to the process that had them started."""
