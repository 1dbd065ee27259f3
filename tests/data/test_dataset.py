import subprocess
import sys

import pytest
import torch
from torch import Tensor

from ebmlife.data import Batches, InMemory
from ebmlife.errors import BadInput


def numbered(n: int) -> InMemory:
    """n images (1, 1, 2); image i holds the bytes (i, 255 - i), so that rows and mirrors can be read off a batch."""
    left = torch.arange(n, dtype=torch.uint8)
    return InMemory(torch.stack([left, 255 - left], dim=1)[:, None, None])


class Slow:
    """A data set that is not in memory: numbered(n), and a BadInput for one row if asked."""

    def __init__(self, n: int, broken: int | None = None) -> None:
        self.labels = None
        self._items, self._broken = numbered(n), broken
        self.shape = self._items.shape

    def __len__(self) -> int:
        return len(self._items)

    def take(self, rows: Tensor) -> Tensor:
        if self._broken in rows.tolist():
            raise BadInput(f"row {self._broken} is broken")
        return self._items.take(rows)


def rows_of(batch: Tensor) -> list[int]:
    """The row numbers of a batch of unmirrored numbered images."""
    return torch.round((batch[:, 0, 0, 0] + 1) * 127.5).int().tolist()


def draw(batches: Batches, n: int) -> Tensor:
    return torch.stack([batches.next() for _ in range(n)])


def test_take_scales_bytes_to_unit_range():
    data = InMemory(torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(3, 1, 1, 1))
    taken = data.take(torch.tensor([2, 0, 1]))
    assert taken.dtype == torch.float32
    assert taken.flatten().tolist() == pytest.approx([1, -1, 51 / 127.5 - 1])
    assert taken.flatten()[:2].tolist() == [1, -1]
    assert data.shape == (1, 1, 1)
    assert len(data) == 3


def test_take_returns_floats_as_held():
    data = InMemory(torch.tensor([[1.5, 0.25], [0.0, -3.0]]))
    assert torch.equal(data.take(torch.tensor([1, 0])), data.items.flip(0))


def test_in_memory_refuses_other_types_and_wrong_labels():
    with pytest.raises(BadInput, match="float64"):
        InMemory(torch.zeros(2, 2, dtype=torch.float64))
    with pytest.raises(BadInput, match="2 items"):
        InMemory(torch.zeros(2, 2), labels=torch.zeros(3, dtype=torch.int64))


def test_an_epoch_visits_each_item_at_most_once_and_drops_the_rest():
    batches = Batches(numbered(23), size=5, seed=0)
    epochs = [rows_of(torch.cat([batches.next() for _ in range(4)])) for _ in range(3)]
    for rows in epochs:
        assert len(set(rows)) == 20
    assert epochs[0] != epochs[1] != epochs[2]
    assert batches.position == 12


def test_every_item_comes_in_time():
    batches = Batches(numbered(23), size=5, seed=0)
    assert set().union(*(rows_of(batches.next()) for _ in range(40))) == set(range(23))


def test_seeds_differ_in_order_and_in_flips():
    def first(seed: int, flip: bool) -> Tensor:
        return draw(Batches(numbered(64), size=64, seed=seed, flip=flip), 1)

    assert torch.equal(first(0, False), first(0, False))
    # 2**32: torch's CPU generator itself would not distinguish it from 0.
    for other in (1, 2**32):
        assert not torch.equal(first(0, False), first(other, False))
        mirrored = [first(seed, True) != first(seed, False) for seed in (0, other)]
        assert not torch.equal(*mirrored)


def test_flip_mirrors_half_of_the_images_horizontally():
    plain = draw(Batches(numbered(100), size=50, seed=3), 40).flatten(0, 1)
    flipped = draw(Batches(numbered(100), size=50, seed=3, flip=True), 40).flatten(0, 1)
    mirrored = (flipped == plain.flip(-1)).flatten(1).all(1)
    same = (flipped == plain).flatten(1).all(1)
    assert torch.equal(same, ~mirrored)
    assert abs(mirrored.float().mean().item() - 0.5) < 5 * 0.5 / 2000**0.5  # five standard deviations


@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_equals_going_on_bit_for_bit(workers):
    def batches() -> Batches:
        return Batches(Slow(37), size=5, seed=11, flip=True, workers=workers)

    whole = draw(Batches(Slow(37), size=5, seed=11, flip=True), 20)  # 7 batches an epoch
    interrupted = batches()
    assert torch.equal(draw(interrupted, 9), whole[:9])
    resumed = batches()
    resumed.load_state_dict(interrupted.state_dict())
    assert torch.equal(draw(resumed, 11), whole[9:])
    resumed.position = 4
    assert torch.equal(draw(resumed, 3), whole[4:7])


def test_the_position_is_the_only_state():
    batches = Batches(numbered(10), size=2, seed=0, flip=True)
    draw(batches, 3)
    assert batches.state_dict() == {"position": 3}


@pytest.mark.parametrize("workers", [0, 2])
def test_drawing_does_not_use_the_global_generator(workers):
    before = torch.get_rng_state()
    draw(Batches(Slow(10), size=2, seed=0, flip=True, workers=workers), 2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_item_is_one_line_and_is_not_skipped(workers):
    batches = Batches(Slow(6, broken=2), size=6, seed=0, workers=workers)
    for _ in range(2):
        with pytest.raises(BadInput, match=r"^row 2 is broken$"):
            batches.next()
    assert batches.position == 0


def test_sets_in_memory_start_no_worker(monkeypatch):
    monkeypatch.setattr("ebmlife.data.dataset.DataLoader", None)
    assert Batches(numbered(4), size=2, seed=0, workers=2).next().shape == (2, 1, 1, 2)


def test_what_cannot_be_batched_is_refused():
    with pytest.raises(BadInput, match=r"4 items, fewer than one batch of 5"):
        Batches(numbered(4), size=5, seed=0)
    with pytest.raises(BadInput, match="size >= 1"):
        Batches(numbered(4), size=0, seed=0)
    with pytest.raises(BadInput, match=r"not items of shape \(2,\)"):
        Batches(InMemory(torch.zeros(4, 2)), size=2, seed=0, flip=True)
    with pytest.raises(BadInput, match="-1"):
        Batches(numbered(4), size=2, seed=0).position = -1


def test_importing_needs_no_optional_library():
    code = "import sys, ebmlife.data; print({'torchvision', 'datasets', 'gdown'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_labels_go_with_their_images_across_epochs_and_when_resumed():
    data = InMemory(numbered(10).items, torch.arange(10) * 3)
    batches = Batches(data, size=4, seed=1)
    drawn = [batches.next_labelled() for _ in range(6)]
    for images, labels in drawn:
        assert labels.tolist() == [3 * row for row in rows_of(images)]
    again = Batches(data, size=4, seed=1)
    again.position = 4
    assert torch.equal(again.next_labelled()[1], drawn[4][1])


def test_labels_that_are_not_there_are_asked_for_in_vain():
    with pytest.raises(BadInput, match="no labels"):
        Batches(numbered(4), size=2, seed=0).next_labelled()


def test_crops_are_shifts_with_a_black_border():
    """Every image of the batch is a window of the padded original; all windows occur; the same at the same position."""
    image = torch.arange(16, dtype=torch.float32).view(1, 1, 4, 4)
    data = InMemory(image.repeat(400, 1, 1, 1))
    batch = Batches(data, size=400, seed=0, crop=1).next()
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1), value=-1)[0, 0]
    windows = {(i, j): padded[i : i + 4, j : j + 4] for i in range(3) for j in range(3)}
    found = [next(key for key, window in windows.items() if torch.equal(shifted, window)) for shifted in batch[:, 0]]
    assert set(found) == set(windows)
    assert torch.equal(Batches(data, size=400, seed=0, crop=1).next(), batch)
    assert not torch.equal(Batches(data, size=400, seed=1, crop=1).next(), batch)


def test_parts_of_a_batch_are_cropped_as_the_whole_is():
    data = InMemory(torch.rand(40, 1, 4, 4))
    options = {"size": 20, "seed": 0, "flip": True, "crop": 2}
    whole = Batches(data, **options).next()
    parts = [Batches(data, **options, part=part).next() for part in (slice(10), slice(10, 20))]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("crop", [-1, 2, 9])
def test_crops_beyond_the_image_are_refused(crop):
    with pytest.raises(BadInput, match="crop must leave some"):
        Batches(InMemory(torch.zeros(4, 1, 2, 2)), size=2, seed=0, crop=crop)
