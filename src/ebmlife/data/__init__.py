"""Data sets: images as float32 (C, H, W) in [-1, 1], points of the plane, and endless batches of both."""

from ebmlife.data.cifar import cifar10
from ebmlife.data.dataset import Batches, Dataset, InMemory
from ebmlife.data.description import Description, described, description_of
from ebmlife.data.fetch import download
from ebmlife.data.folders import folder
from ebmlife.data.libraries import huggingface, torchvision
from ebmlife.data.mnist import mnist
from ebmlife.data.sklearn_digits import digits
from ebmlife.data.streamed import Cropped, Streamed
from ebmlife.data.tars import webdataset
from ebmlife.data.toys import TOYS, Mixture, Rings, Spirals, Toy, density, toy

__all__ = [
    "TOYS",
    "Batches",
    "Cropped",
    "Dataset",
    "Description",
    "InMemory",
    "Mixture",
    "Rings",
    "Spirals",
    "Streamed",
    "Toy",
    "cifar10",
    "density",
    "described",
    "description_of",
    "digits",
    "download",
    "folder",
    "huggingface",
    "mnist",
    "torchvision",
    "toy",
    "webdataset",
]
