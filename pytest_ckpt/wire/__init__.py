"""Connections from ranks and second clients back to the process that had them started.

Standard input and output of a launcher are not reliable. Open MPI drops input above 4,096 bytes for another host, hydra
ends if input arrives faster than it is read, and the last line before a rank ends may be lost. So each rank, and the
agent of a second client, opens one TCP connection to the process that had it started. It ends only after that process
has confirmed its last message; a rank that ends without is a failure.

Why TCP: every launcher's own daemons connect back in this way (``prted``, ``hydra_pmi_proxy``, Slurm's step manager to
``srun``), so a route exists, also from a batch job or a pod. A file that all hosts read does not exist before the
target is checked, and a job does not fit into an environment. The environment contains only addresses and the launch's
secret. The launcher forwards both by name, so no list of processes and no file of a report contains the secret.

The network is not trusted. Both sides prove that they know the secret (`frames`, `listener`).
"""
