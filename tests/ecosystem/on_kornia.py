"""Kornia: images, geometry and augmentation, differentiable and on GPUs."""

import kornia
import kornia.augmentation as K
import torch

from tests.ecosystem.support import close, main

NEEDS = ("kornia",)
SHORT = ("geometry",)


def images(size: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(2, 3, size, size, generator=generator)


def check_filters_and_colours():
    """Filters and conversions of colour give the CPU's images on a GPU."""
    X = images()
    for function in (
        lambda x: kornia.filters.gaussian_blur2d(x, (3, 3), (1.5, 1.5)),
        lambda x: kornia.filters.sobel(x),
        lambda x: kornia.filters.median_blur(x, (3, 3)),
        lambda x: kornia.filters.canny(x)[0],
        lambda x: kornia.color.rgb_to_lab(x),
        lambda x: kornia.color.rgb_to_hsv(x),
        lambda x: kornia.enhance.equalize_clahe(x, grid_size=(4, 4)),
        lambda x: kornia.morphology.dilation(x, torch.ones(3, 3).to(x.device)),
    ):
        close(function(X.to("cuda:1")), function(X), "cuda:1", rtol=1e-3, atol=1e-3)


def check_geometry():
    """Images are rotated, warped and resized on a GPU as they are on the CPU."""
    X = images()
    corners = torch.tensor([[[0.0, 0.0], [15.0, 0.0], [15.0, 15.0], [0.0, 15.0]]])
    moved = corners + torch.tensor([[[1.0, 2.0], [-2.0, 1.0], [0.0, -1.0], [2.0, 0.0]]])

    def warp(x):
        there = moved.to(x.device).expand(2, -1, -1)
        matrix = kornia.geometry.get_perspective_transform(
            corners.to(x.device).expand(2, -1, -1), there
        )
        return kornia.geometry.warp_perspective(x, matrix, (16, 16))

    for function in (
        warp,
        lambda x: kornia.geometry.rotate(x, torch.tensor([30.0, 45.0]).to(x.device)),
        lambda x: kornia.geometry.resize(x, (8, 8)),
        lambda x: kornia.geometry.transform.pyrdown(x),
    ):
        close(function(X.cuda()), function(X), "cuda:0", rtol=1e-3, atol=1e-3)
    points = torch.rand(1, 20, 2, generator=torch.Generator().manual_seed(1))
    matrix = torch.tensor([[[1.1, 0.1, 0.2], [0.0, 0.9, 0.1], [0.05, 0.0, 1.0]]])
    others = kornia.geometry.transform_points(matrix, points)
    found = kornia.geometry.find_homography_dlt(points.cuda(), others.cuda())
    close(found, matrix, "cuda:0", rtol=1e-2, atol=1e-3)


def check_augmentation():
    """Random augmentations on a GPU repeat with their parameters, there and here."""
    X = images()
    augment = K.AugmentationSequential(
        K.RandomHorizontalFlip(p=0.5),
        K.RandomAffine(degrees=20.0, translate=(0.1, 0.1), p=1.0),
        K.ColorJitter(0.2, 0.2, 0.2, 0.1, p=1.0),
        K.RandomErasing(p=1.0),
        data_keys=["input", "mask"],
    )
    torch.manual_seed(0)
    image, mask = augment(X.cuda(), X[:, :1].cuda())
    assert image.device == mask.device == torch.device("cuda:0")
    assert not torch.allclose(image.cpu(), X)
    again, other = augment(X.cuda(), X[:, :1].cuda(), params=augment._params)
    close(again, image.cpu(), "cuda:0")
    close(other, mask.cpu(), "cuda:0")
    torch.manual_seed(0)
    third, _ = augment(X.cuda(), X[:, :1].cuda())
    close(third, image.cpu(), "cuda:0")


def check_losses():
    """Losses between images have the CPU's values and gradients on a GPU."""
    X, Y = images(), images().flip(-1)
    for function in (
        lambda x, y: kornia.losses.ssim_loss(x, y, window_size=5),
        lambda x, y: kornia.losses.psnr_loss(x, y, max_val=1.0),
        lambda x, y: kornia.losses.total_variation(x - y).mean(),
        lambda x, y: kornia.losses.charbonnier_loss(x, y, reduction="mean"),
    ):
        here = X.clone().requires_grad_()
        there = X.cuda().requires_grad_()
        expected, mine = function(here, Y), function(there, Y.cuda())
        close(mine, expected, "cuda:0", rtol=1e-3)
        expected.backward()
        mine.backward()
        close(there.grad, here.grad, "cuda:0", rtol=1e-2, atol=1e-4)


if __name__ == "__main__":
    main(globals())
