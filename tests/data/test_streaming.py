"""Images from wherever they lie: the same pixels and labels, cropped at random to train on, in a known order."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from test_run import assert_same

from ebmlife import recipes
from ebmlife.data import Batches, Cropped, Dataset, InMemory, folder, huggingface, torchvision, webdataset
from ebmlife.data.squares import anywhere, center
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe, override
from ebmlife.runs import build, run

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
SIZES = [(9, 14), (16, 9), (10, 10), (9, 30), (12, 11), (25, 13)]  # height, width
CLASSES = ["n01", "n02"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def photographs() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(256, size=(*size, 3), dtype=np.uint8) for size in SIZES]


def encoded(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """train/CLASS/N.png: three images of each of two classes."""
    for i, pixels in enumerate(photographs()):
        file = tmp_path / "imagenet" / "train" / CLASSES[i // 3] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded(pixels))
    return tmp_path / "imagenet" / "train"


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two tars of three samples: an image, its class, and a text that is neither."""
    for shard in (0, 1):
        members = {}
        for i in range(3 * shard, 3 * shard + 3):
            members |= {f"a/{i:04d}.PNG": encoded(photographs()[i]), f"a/{i:04d}.txt": b"a caption"}
            members[f"a/{i:04d}.cls"] = str(i // 3).encode()
        write_tar(tmp_path / "shards" / f"train-{shard:02d}.tar", members)
    return tmp_path / "shards"


def pixels_of(data: Dataset) -> torch.Tensor:
    return data.take(torch.arange(len(data)))


@pytest.mark.parametrize("pattern", ["", "/train-*.tar", "/train-{00..01}.tar"])
def test_tars_hold_what_the_folder_holds(files: Path, shards: Path, pattern: str) -> None:
    plain, data = folder(files, size=8), webdataset(shards=f"{shards}{pattern}", size=8)
    assert torch.equal(pixels_of(data), pixels_of(plain))
    assert data.labels is not None
    assert data.labels.tolist() == plain.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_tar_is_indexed_once_and_again_when_it_changes(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = pixels_of(webdataset(shards=str(shards), size=4))
    with monkeypatch.context() as patch:
        patch.setattr("ebmlife.data.tars.tarfile.open", None)
        assert torch.equal(pixels_of(webdataset(shards=str(shards), size=4)), before)
    write_tar(shards / "train-01.tar", {"x.png": encoded(photographs()[5])})
    data = webdataset(shards=str(shards), size=4)
    assert torch.equal(pixels_of(data), before[[0, 1, 2, 5]])
    assert data.labels is None  # one image has none


def test_hugging_face_holds_what_the_folder_holds(files: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    names = sorted(files.rglob("*.png"))
    features = {"id": datasets.Value("int64"), "photo": datasets.Image(), "kind": datasets.ClassLabel(names=CLASSES)}
    columns = {"id": [*range(6)], "photo": [str(name) for name in names], "kind": [0, 0, 0, 1, 1, 1]}
    rows = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    rows.save_to_disk(tmp_path / "alone", num_proc=None)
    datasets.DatasetDict({"train": rows, "test": rows.select([4])}).save_to_disk(tmp_path / "both")
    plain = folder(files, size=8)
    for place in ("alone", "both"):
        data = huggingface(name=str(tmp_path / place), size=8)
        assert torch.equal(pixels_of(data), pixels_of(plain))
        assert data.labels is not None
        assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert torch.equal(pixels_of(huggingface(name=str(tmp_path / "both"), size=8, split="test")), pixels_of(plain)[4:5])
    with pytest.raises(BadInput, match=r"no column of images 'foto'; it has \['id', 'photo', 'kind'\]"):
        huggingface(name=str(tmp_path / "alone"), size=8, column="foto")
    with pytest.raises(BadInput, match="cannot be loaded as 'val'"):
        huggingface(name=str(tmp_path / "both"), size=8, split="val")


def test_torchvisions_imagenet_holds_what_the_folder_holds(files: Path) -> None:
    pytest.importorskip("torchvision")
    torch.save(({"n01": ("tench",), "n02": ("ray",)}, []), files.parent / "meta.bin")  # as torchvision keeps it
    data = torchvision(name="ImageNet", folder=str(files.parent), size=8)
    assert torch.equal(pixels_of(data), pixels_of(folder(files, size=8)))
    assert data.labels is not None
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(BadInput, match="torchvision finds no CelebA there"):
        torchvision(name="CelebA", folder=str(files.parent), size=8)


def test_torchvisions_celeba_is_read_by_its_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = pytest.importorskip("torchvision.datasets")
    monkeypatch.setattr(kinds.CelebA, "_check_integrity", lambda self: True)  # it knows the true lists by their MD5
    place = tmp_path / "celeba"
    names = [f"{i + 1:06d}.png" for i in range(6)]
    for name, pixels in zip(names, photographs(), strict=True):
        (place / "img_align_celeba").mkdir(parents=True, exist_ok=True)
        (place / "img_align_celeba" / name).write_bytes(encoded(pixels))
    part = [0, 0, 1, 2, 0, 2]  # train, valid, test
    (place / "list_eval_partition.txt").write_text("".join(f"{n} {p}\n" for n, p in zip(names, part, strict=True)))
    (place / "identity_CelebA.txt").write_text("".join(f"{name} 1\n" for name in names))
    for file in ("list_bbox_celeba.txt", "list_landmarks_align_celeba.txt", "list_attr_celeba.txt"):
        (place / file).write_text("6\nwhat\n" + "".join(f"{name} 1\n" for name in names))
    everything = pixels_of(folder(place / "img_align_celeba", size=8))
    for train, rows in ((True, [0, 1, 4]), (False, [3, 5])):
        data = torchvision(name="CelebA", folder=str(tmp_path), size=8, train=train)
        assert torch.equal(pixels_of(data), everything[rows])


def test_the_papers_crop_is_the_largest_square_anywhere_along_the_longer_side() -> None:
    assert anywhere((0.3, 0.0, 0.9))(14, 9) == (0, 0, 9, 9)
    assert anywhere((0.3, 0.999, 0.9))(14, 9) == (5, 0, 14, 9)
    assert anywhere((0.3, 0.9, 0.5))(9, 30) == (0, 11, 9, 20)
    assert anywhere((0.3, 0.9, 0.5))(10, 10) == center(10, 10) == (0, 0, 10, 10)


def test_smaller_crops_have_uniform_area_and_stay_inside() -> None:
    chances = torch.rand(2000, 3, generator=torch.Generator().manual_seed(0))
    boxes = torch.tensor([anywhere(three, area=0.25)(1000, 700) for three in chances.tolist()])
    left, top, right, bottom = boxes.T
    assert torch.equal(right - left, bottom - top)  # no change of aspect
    assert boxes.min() >= 0
    assert right.max() <= 1000
    assert bottom.max() <= 700
    area = ((right - left) / 700) ** 2
    assert 0.249 < area.min() < 0.26
    assert 0.99 < area.max() <= 1
    assert area.mean().item() == pytest.approx((0.25 + 1) / 2, abs=5 * 0.75 / 12**0.5 / 2000**0.5)


def test_crops_are_exact_and_evaluation_uses_the_center(tmp_path: Path) -> None:
    pixels = photographs()[3]  # 9 x 30
    (tmp_path / "1.png").write_bytes(encoded(pixels))
    data = folder(tmp_path, size=9, crop=1.0)
    assert isinstance(data, Cropped)
    whole = torch.from_numpy(pixels).permute(2, 0, 1) / 127.5 - 1
    torch.testing.assert_close(pixels_of(data)[0], whole[:, :, 10:19])
    drawn = data.take_varied(torch.tensor([0, 0]), torch.tensor([[0.5, 0.0, 0.5], [0.5, 0.5, 0.5]]))
    torch.testing.assert_close(drawn, torch.stack([whole[:, :, :9], whole[:, :, 11:20]]))


@pytest.mark.parametrize("workers", [0, 2])
def test_cropped_batches_resume_and_are_shared_bit_for_bit(shards: Path, workers: int) -> None:
    def batches(workers: int = workers, part: slice = slice(None)) -> Batches:
        data = webdataset(shards=str(shards), size=6, crop=0.5)
        return Batches(data, size=4, seed=3, flip=True, workers=workers, part=part)

    whole = [one.next() for one in [batches(0)] for _ in range(7)]
    resumed = batches()
    resumed.load_state_dict({"position": 3})
    assert all(torch.equal(resumed.next(), batch) for batch in whole[3:])
    parts = [batches(part=part) for part in (slice(0, 2), slice(2, 4))]
    assert all(torch.equal(torch.cat([part.next() for part in parts]), batch) for batch in whole[:3])


def test_an_image_is_cropped_differently_each_time(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(encoded(photographs()[3]))
    batches = Batches(folder(tmp_path, size=9, crop=1.0), size=1, seed=0)
    drawn = {batches.next().numpy().tobytes() for _ in range(20)}
    assert 10 < len(drawn) <= 20  # of 22 places


def test_a_run_on_cropped_tars_resumes_bit_for_bit(shards: Path, tmp_path: Path) -> None:
    quiet, folders = Console(quiet=True), (tmp_path / "whole", tmp_path / "parts")
    run.begin(_recipe(shards, 4), folders[0], console=quiet)
    run.begin(_recipe(shards, 2), folders[1], console=quiet)
    run.resume(folders[1], change=lambda recipe: recipe.model_copy(update={"updates": 4}), console=quiet)
    assert_same(*folders)


def _recipe(shards: Path, updates: int) -> Recipe:
    fields = {"data.kind": "webdataset", "data.shards": str(shards), "data.size": "8", "data.crop": "0.5"}
    fields |= {"batch": "4", "net.width": "4", "generator.net.width": "4", "generator.net.latent": "3", "workers": "1"}
    fields |= {"langevin.steps": "2", "chains.size": "8", "sampling_steps": "2", "watch.pictures": "2"}
    return build.resolve(override(build.resolve(recipes.get("folder-shortrun")), fields | {"updates": str(updates)}))


def test_a_broken_image_is_named_by_its_tar(shards: Path) -> None:
    write_tar(shards / "train-02.tar", {"1.png": encoded(photographs()[0])[:60], "1.cls": b"1"})
    with pytest.raises(BadInput, match=r"^[^\n]*train-02\.tar, the image at byte 512: cannot be read as an image"):
        webdataset(shards=str(shards), size=4)


def test_mistakes_are_one_line(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "torn.tar").write_bytes((shards / "train-00.tar").read_bytes()[:700])
    (tmp_path / "no.tar").write_text("<html>404</html>")
    write_tar(tmp_path / "empty.tar", {"1.txt": b"words"})
    write_tar(tmp_path / "odd.tar", {"1.cls": b"cat"})
    for options, reason in [
        ({"shards": str(tmp_path / "nowhere")}, "nowhere: no such tar"),
        ({"shards": str(shards / "train-{00..02}.tar")}, "train-02.tar: no such tar"),
        ({"shards": str(shards / "val-*.tar")}, "no such tar"),
        ({"shards": str(tmp_path / "no.tar")}, "not a plain tar"),
        ({"shards": str(tmp_path / "odd.tar")}, "not a plain tar"),
        ({"shards": str(tmp_path / "empty.tar")}, "no image in it"),
        ({"shards": str(shards), "crop": 0.0}, "above 0 and at most 1, not 0.0"),
    ]:
        with pytest.raises(BadInput, match=reason) as refusal:
            webdataset(**({"size": 4} | options))  # type: ignore[arg-type]
        assert "\n" not in str(refusal.value)


def test_a_crop_that_is_none_changes_no_hash() -> None:
    recipe = build.resolve(recipes.get("folder-shortrun"))
    assert recipe.data.options["crop"] is None
    before = recipe.model_copy(update={"data": type(recipe.data)(kind="folder", **_without(recipe, "crop"))})
    assert recipe.hash == before.hash
    assert recipe.hash != build.resolve(override(recipe, {"data.crop": "1"})).hash


def _without(recipe: Recipe, name: str) -> dict[str, object]:
    return {key: value for key, value in recipe.data.options.items() if key != name}


@pytest.mark.parametrize(("name", "n"), [("celeba-2k", 2000), ("imagenet-200", 200)])
def test_real_photographs_are_cropped(name: str, n: int) -> None:
    if not (SHARED / name).is_dir():
        pytest.skip(f"{SHARED / name} is not on this machine")
    data = folder(SHARED / name, size=32, crop=0.25)
    assert len(data) == n
    assert not isinstance(data, InMemory)
    batches = Batches(data, size=16, seed=0, workers=1)
    drawn = torch.cat([batches.next() for _ in range(2)])
    assert drawn.shape == (32, 3, 32, 32)
    assert drawn.std() > 0.3
