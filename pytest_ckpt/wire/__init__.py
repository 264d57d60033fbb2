"""Connections from ranks and second clients to the process that started them through a launcher (the listener).

A launcher's standard input and output are not reliable. Open MPI drops input above 4,096 bytes for another host. Hydra
ends if input arrives faster than it is read. The last line that a rank prints may be lost. Each rank, and each agent
(the process of a second client), therefore opens one TCP connection to the listener. A rank ends only after the
listener has acknowledged the rank's last message. A rank that ends without this acknowledgment has failed. An agent
ends when the listener closes the connection.

The daemons of every launcher use TCP (``prted``, ``hydra_pmi_proxy``, Slurm's step manager). A route therefore exists,
also from a batch job or a pod. A shared file cannot be used, because the target is not checked yet. Environment
variables are too small for a job's data. One variable contains the listener's addresses, another the secret of the
launch. The launcher forwards these two variables by name, so the secret appears neither in process lists nor in files
of a report.

The network is not trusted: both sides prove that they know the secret (`frames`, `listener`).
"""
