"""The pretended device is set up in a process of its own, because PyTorch cannot forget a device.

Autograd and checkpoints of all other tests would meet it. ``tests/test_devices.py`` runs the tests of this folder.
"""

import os

collect_ignore = [] if os.environ.get("TANGENTLAB_PRETENDED_DEVICE") else ["test_devices.py"]
