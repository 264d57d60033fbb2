"""Several simulated hosts on one machine.

A host is a set of namespaces with its own network, name, boot id, /tmp, sshd and mount.
"""
