"""Training sets: an archive's streams as time-aligned rows, and live channels as data sets, for torch and without it.

`building` decides what goes into a set, `streams` reads, `aligning` finds partners and episodes, `writing` makes Parquet and images; `reading`
and `live` are data sets, `workers` says which part a worker reads, and only `torching` imports torch.
"""
