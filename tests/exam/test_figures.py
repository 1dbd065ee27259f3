import pytest
import torch

from ebmlife.exam.metrics import contrast, diversity, measure_data, outside, variation

CHECKERS = torch.tensor([[[[1.0, -1.0], [-1.0, 1.0]]]])


def test_outside_is_the_share_of_values_beyond_the_cube() -> None:
    assert outside(torch.tensor([[1.0, -1.0, 1.1, -7.0]])) == 0.5


def test_contrast_is_within_an_image_not_between_images() -> None:
    grey = torch.stack([torch.full((1, 4, 4), value) for value in (-1.0, 1.0)])
    assert contrast(grey) == 0
    assert contrast(CHECKERS) == pytest.approx((4 / 3) ** 0.5)


def test_variation_counts_both_directions() -> None:
    assert variation(CHECKERS) == 4  # 2 across and 2 down
    stripes = torch.tensor([[[[1.0, 1.0], [-1.0, -1.0]]]])
    assert variation(stripes) == 2


def test_the_diversity_of_two_points_is_their_distance() -> None:
    assert diversity(torch.tensor([[[[0.0, 0.0]]], [[[3.0, 4.0]]]])) == 5
    assert diversity(torch.ones(4, 1, 2, 2)) == 0


def test_points_of_the_plane_have_no_pixels() -> None:
    assert set(measure_data(torch.randn(5, 2))) == {"diversity"}
    assert set(measure_data(torch.randn(5, 1, 4, 4))) == {"outside", "contrast", "variation", "diversity"}


def test_a_line_of_pixels_has_no_variation() -> None:
    assert set(measure_data(torch.rand(4, 1, 1, 8))) == {"outside", "diversity"}
