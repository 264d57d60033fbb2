"""Several hosts on one machine: each a set of namespaces with its own network, name, boot, /tmp, sshd and mount."""
