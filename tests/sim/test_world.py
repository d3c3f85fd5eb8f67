"""The simulated world itself: the same seed gives the same history, and it is as bad as it says."""

import pytest
from sim import recording
from sim.world import Disk, Network, Weather, World


def exchange(seed, weather, count=60):
    """Sends numbers by stop-and-wait from one node to another. Returns those that arrived, and the history."""
    world = World(seed)
    network = Network(world, weather)
    arrived, sent = [], {"next": 0}

    def send():
        if sent["next"] < count:
            network.send("a", "b", sent["next"].to_bytes(2, "big"))
            world.at(0.005, send)  # again, until it is acknowledged

    def receive_b(source, packet):
        number = int.from_bytes(packet, "big")
        world.note(f"b got {number}")
        if number == len(arrived):
            arrived.append(number)
        network.send("b", source, packet)

    def receive_a(_, packet):
        if int.from_bytes(packet, "big") == sent["next"]:
            sent["next"] += 1

    network.join("a", receive_a)
    network.join("b", receive_b)
    cut = frozenset("ab")
    world.at(0.5, lambda: weather.partitions.add(cut))
    world.at(1.5, lambda: weather.partitions.discard(cut))
    send()
    world.run(60)
    return arrived, world.log


def test_a_seed_is_a_history():
    first = exchange(7, Weather(loss=0.3, duplication=0.5, delay=(0.001, 0.02)))
    assert first == exchange(7, Weather(loss=0.3, duplication=0.5, delay=(0.001, 0.02)))
    assert first[0] == list(range(60))
    assert first[1] != exchange(8, Weather(loss=0.3, duplication=0.5, delay=(0.001, 0.02)))[1]


@pytest.mark.parametrize(("loss", "duplication"), [(0, 0), (0.3, 0), (0, 0.5), (0.3, 0.5)])
def test_weather_is_as_bad_as_it_says(loss, duplication):
    world = World(3)
    network = Network(world, Weather(loss=loss, duplication=duplication, delay=(0, 1)))
    got = []
    network.join("b", lambda _, packet: got.append(packet))
    for number in range(4000):
        network.send("a", "b", number.to_bytes(2, "big"))
    world.run(2)
    assert len(got) / 4000 == pytest.approx(1 - loss + duplication, abs=0.05)
    assert got != sorted(got)  # they overtake each other


def test_a_partition_lets_nothing_through():
    world = World(1)
    network = Network(world, Weather(partitions={frozenset("ab")}))
    got = []
    network.join("b", lambda _, packet: got.append(packet))
    network.send("a", "b", b"x")
    world.run(1)
    assert got == []


def test_a_power_cut_keeps_what_was_synced_and_little_else(tmp_path):
    losses = names = 0
    for seed in range(40):
        root, after = tmp_path / f"r{seed}", tmp_path / f"a{seed}"
        root.mkdir()
        disk = Disk(World(seed), root)
        (root / "kept").write_bytes(b"k" * 1000)
        disk.synced(root / "kept")
        disk.folder_synced(root)
        with open(root / "kept", "ab") as file:
            file.write(b"u" * 3000)
        (root / "unnamed").write_bytes(b"n")
        disk.cut_power(after)
        left = (after / "kept").read_bytes()
        assert left[:1000] == b"k" * 1000
        losses += left != b"k" * 1000 + b"u" * 3000
        names += (after / "unnamed").exists()
    assert 20 < losses <= 40
    assert 5 < names < 35


@pytest.mark.parametrize("seed", range(1, 9))
def test_recordings_survive_what_a_world_does_to_them(seed):
    history = recording.simulate(seed)
    assert history == recording.simulate(seed)
    assert "recorded last" in history[-1]
