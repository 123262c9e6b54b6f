"""Who does the work: processes of this machine, the cores of a Ray cluster, several processes that train one network.

`pool` has one interface for jobs that do not depend on each other; `cluster` carries it out on Ray. `launching` starts
the processes of one run. Both are built on `children`. Neither torch nor Ray is loaded before it is used.
"""
