"""With torch's DataLoader: two workers load the batches of two epochs, each in a new order."""

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, 32, 32), float(index))  # reads and decodes a file


if __name__ == "__main__":
    loader = DataLoader(Images(), batch_size=50, shuffle=True, num_workers=2, persistent_workers=True)
    seen = []
    for _ in range(2):
        for batch in loader:
            seen += batch[:, 0, 0, 0].tolist()
    print(
        f"{len(seen)} images in {len(loader)} batches an epoch, each once an epoch: {sorted(seen[:1000]) == sorted(seen[1000:])}"
    )
