"""As if this process were a worker of torch's DataLoader, without torch: workers ask `torch.utils.data` alone which one they are."""

import sys
import types


def become_worker(index: int, count: int) -> None:
    """From now on this process is the worker `index` of `count`."""
    module = types.ModuleType("torch.utils.data")
    module.get_worker_info = lambda: types.SimpleNamespace(id=index, num_workers=count)  # type: ignore[attr-defined]
    sys.modules["torch.utils.data"] = module
