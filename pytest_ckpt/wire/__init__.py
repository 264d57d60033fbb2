"""Connections from ranks and second clients to the process that started them through a launcher (the listener).

Standard input and output of a launcher are not reliable. Open MPI drops input above 4,096 bytes for another host. Hydra
ends if input arrives faster than it is read. The last line before a rank's end may be lost. So each rank, and the agent
of a second client, opens one TCP connection to the listener. A rank or agent ends only after the listener has
acknowledged its last message; an end without the acknowledgement is a failure.

TCP is used because every launcher's own daemons use it (``prted``, ``hydra_pmi_proxy``, Slurm's step manager). So a
route exists, also from a batch job or a pod. A shared file cannot be used, because the target is not checked yet.
Environment variables are too small for a job: they contain only the listener's addresses and the launch's secret. The
launcher forwards both variables by name, so neither lists of processes nor files of a report contain the secret.

The network is not trusted. Both sides prove that they know the secret (`frames`, `listener`).
"""
