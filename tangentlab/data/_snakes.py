"""The snakes subset of ImageNet: which classes it has."""

# ImageNet's 1,000 classes contain 17 snakes. samarin2022 trains on "ten different snake classes (see Supp.
# Sec. A.1), whereby we deliberately chose similar classes"; the list is not in its text. These ten are chosen
# here: the first ten by WordNet id, which are colubrids and the boa, close to one another in look. About
# 1,300 training images each make the paper's 13,000.
SNAKE_SYNSETS: dict[str, str] = {
    "n01728572": "thunder snake",
    "n01728920": "ringneck snake",
    "n01729322": "hognose snake",
    "n01729977": "green snake",
    "n01734418": "king snake",
    "n01735189": "garter snake",
    "n01737021": "water snake",
    "n01739381": "vine snake",
    "n01740131": "night snake",
    "n01742172": "boa constrictor",
}

# The other seven, for those who choose otherwise.
OTHER_SNAKE_SYNSETS: dict[str, str] = {
    "n01744401": "rock python",
    "n01748264": "Indian cobra",
    "n01749939": "green mamba",
    "n01751748": "sea snake",
    "n01753488": "horned viper",
    "n01755581": "diamondback",
    "n01756291": "sidewinder",
}
