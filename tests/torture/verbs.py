"""Every command that writes, and what finishes it when it was stopped."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    name: str
    command: str
    makes: str = ""  # a run's folder, in which it is resumed
    endless: bool = False  # it serves until it is stopped, and writes nothing

    @property
    def words(self) -> list[str]:
        return self.command.split()

    def again(self) -> list[str]:
        """What a user types after it was stopped."""
        return [*self.words, "--or-resume"] if self.makes else self.words


COMMON = "--batch 8 --workers 0 --watch.pictures 4 --watch.pictures_every 3 --net.width 4"
SAVED = "--updates 6 --checkpoint.every 2 --checkpoint.keep 3"
_CHAINS = "--langevin.steps 3 --generator.net.width 4 --generator.net.latent 3 --chains.size 20 --sampling_steps 2"
TRAIN = f"train digits-shortrun {COMMON} {SAVED} {_CHAINS} --data.train true"
TOY = f"train toy-mixture-midrun {COMMON} {SAVED} --data.n 50 --chains.size 9 --langevin.steps 2"
EXAM = "exam run --steps 20 --chains 8 --batch 4"
FID = "fid run --n 50"
ATTACK = (
    "attack run --classifier classifier --threat linf:8/255 --n 6 --steps 2 --replicas 2 --verify 3 --evaluations 2 "
    "--k 2 --batch 4"
)
REPORT = "report run"
_SMALL = f"{COMMON} {SAVED}"
_NEW = "--out new"
_QUICK = ATTACK.removeprefix("attack run ").replace("8/255", "4/255")

VERBS = (
    Verb("train", f"{TRAIN} {_NEW}", makes="new"),
    Verb("train a toy", f"{TOY} {_NEW}", makes="new"),
    Verb("train a classifier", f"train digits-classifier {_SMALL} --net.depth 8 {_NEW}", makes="new"),
    Verb("train a GAN", f"train digits-gan {_SMALL} --generator.net.width 4 {_NEW}", makes="new"),
    Verb("resume", "resume run --updates 10 --allow-changes"),
    Verb("resume, changed", "resume run --updates 8 --data_noise 0.2 --allow-changes"),
    Verb("resume from before", "resume run --from-update 2"),
    Verb("sample a grid", "sample run --n 9 --out out.png"),
    Verb("sample an array", "sample run --n 300 --out out.npy"),
    Verb("sample tensors", "sample run --n 300 --out out.safetensors"),
    Verb("sample a folder", "sample run --n 9 --out out"),
    Verb("fid", "fid run --n 60 --steps 0,1"),
    Verb("exam", "exam run --steps 200 --chains 8 --batch 4 --out exam"),
    Verb("attack", f"attack run {_QUICK} --out attacked"),
    Verb("purify", "purify run images/000000.png images/000001.png --out clean --steps 3 --strip"),
    Verb("report", "report run --out page.html"),
    Verb("report with a walk", "report toy run --steps 200 --chains 8 --out page.html"),
    Verb("import", "import weights/ebm.ckpt --out imported"),
    Verb("push", "push run hf:some/one"),
    Verb("watch", "watch run --port 0", endless=True),
)
