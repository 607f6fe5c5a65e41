"""Published files of the data sets: names, sizes, checksums, addresses.

MNIST's and Fashion-MNIST's sums of the compressed files are those that torchvision pins and Zalando
publishes; the sums of the uncompressed content are beside them because mirrors recompress. CIFAR-10's archive
sums are published on https://www.cs.toronto.edu/~kriz/cifar.html, those of the python batches in torchvision; those
of the binary batches are of the archive's content, as several public projects record them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """A file to download.

    Attributes:
        name: Its name on disk.
        md5: MD5 of the file.
        size: In bytes.
        urls: Addresses, tried in turn.
    """

    name: str
    md5: str
    size: int
    urls: tuple[str, ...]


@dataclass(frozen=True)
class IdxFile:
    """One of the four files of MNIST and its relatives.

    Attributes:
        name: Without ``.gz``.
        content_md5: MD5 of the uncompressed content.
        remote: The compressed file.
    """

    name: str
    content_md5: str
    remote: RemoteFile


@dataclass(frozen=True)
class IdxPublication:
    """A data set in MNIST's format.

    Attributes:
        name: What ``load`` calls it.
        title: Its name in text.
        folders: Usual folders of its files below a data folder; the first is recommended.
        files: Training images and labels, test images and labels.
        classes: Names of the labels.
    """

    name: str
    title: str
    folders: tuple[str, ...]
    files: tuple[IdxFile, IdxFile, IdxFile, IdxFile]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class CifarForm:
    """CIFAR-10 in its binary or its python form.

    Attributes:
        folder: What the archive unpacks to.
        archive: The archive.
        train: Names of the training batches with the MD5 of each.
        test: The test batch.
    """

    folder: str
    archive: RemoteFile
    train: tuple[tuple[str, str], ...]
    test: tuple[tuple[str, str], ...]


# Training images, training labels, test images, test labels.
IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _idx_files(
    mirrors: tuple[str, ...], facts: tuple[tuple[str, str, int], ...]
) -> tuple[IdxFile, IdxFile, IdxFile, IdxFile]:
    files = [
        IdxFile(name, content, RemoteFile(f"{name}.gz", md5, size, tuple(f"{m}{name}.gz" for m in mirrors)))
        for name, (content, md5, size) in zip(IDX_NAMES, facts, strict=True)
    ]
    return files[0], files[1], files[2], files[3]


MNIST = IdxPublication(
    "mnist",
    "MNIST",
    ("MNIST/raw", "MNIST", "mnist", "."),
    _idx_files(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        (
            ("6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            ("a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            ("2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            ("27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        ),
    ),
    tuple("0123456789"),
)

FASHION_MNIST = IdxPublication(
    "fashion_mnist",
    "Fashion-MNIST",
    # The last but one is where Debian's package dataset-fashion-mnist puts them below /usr/share.
    ("FashionMNIST/raw", "fashion-mnist", "fashion_mnist", "datasets/fashion-mnist", "."),
    _idx_files(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        (
            ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            ("9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            ("8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            ("15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
    ),
    (
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
)

CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

CIFAR10_BINARY = CifarForm(
    "cifar-10-batches-bin",
    RemoteFile(
        "cifar-10-binary.tar.gz",
        "c32a1d4ab5d03f1284b67883e8d87530",
        170_052_171,
        (
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
        ),
    ),
    (
        ("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
        ("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
        ("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
        ("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
        ("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
    ),
    (("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),),
)

CIFAR10_PYTHON = CifarForm(
    "cifar-10-batches-py",
    RemoteFile(
        "cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        170_498_071,
        (
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "https://cave.cs.toronto.edu/kriz/cifar-10-python.tar.gz",
        ),
    ),
    (
        ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
        ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        ("data_batch_4", "634d18415352ddfa80567beed471001a"),
        ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    ),
    (("test_batch", "40351d587109b95175f43aff81a1287e"),),
)
