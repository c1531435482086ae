"""Tasks on threads: results in order, settings left as they were, gradients recorded nowhere."""

import threading
import time

import pytest
import torch

from limbeck.kernels import relation_kl_blocked, relation_kl_reference, workers
from limbeck.kernels.workers import Scratch, run_tasks
from tests.kernels.relation_cases import draw, run
from tests.support.masks import make_mask


def test_results_come_in_order_from_several_threads(two_threads):
    def task(number):
        time.sleep(0.02)
        return number, threading.get_ident(), torch.get_num_threads(), torch.is_grad_enabled()

    results = run_tasks([lambda n=n: task(n) for n in range(8)])
    assert [number for number, *_ in results] == list(range(8))
    assert len({thread for _, thread, *_ in results}) == 2
    assert {(threads, recording) for *_, threads, recording in results} == {(1, False)}


def test_settings_of_the_process_stay(two_threads, monkeypatch):
    monkeypatch.setattr(workers, "_pools", {})
    run_tasks([lambda: None] * 3)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert [torch.get_num_threads(), *seen] == [2, 2]


def test_errors_arrive_and_one_task_stays_where_it_is(two_threads):
    with pytest.raises(ZeroDivisionError):
        run_tasks([lambda: 1, lambda: 1 // 0])
    assert run_tasks([threading.get_ident]) == [threading.get_ident()]


@pytest.mark.parametrize("symmetric", [True, False])
def test_kernels_give_the_same_on_several_threads(symmetric, two_threads):
    for length, name in ((10, "empty row"), (128, "right"), (128, "none")):
        tensors, mask = draw(length, batch=4, heads=3, symmetric=symmetric), make_mask(name, length)
        expected = run(relation_kl_reference, tensors, 3, mask)
        for _ in range(3):
            found = run(relation_kl_blocked, tensors, 3, mask, block=1 << 12)
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_scratch_is_used_again():
    scratch, like = Scratch(), torch.zeros(0)
    first = scratch.take("a", (4, 5), like, torch.float32)
    assert scratch.take("a", (2, 3), like, torch.float32).data_ptr() == first.data_ptr()
    assert scratch.take("b", (4, 5), like, torch.float32).data_ptr() != first.data_ptr()
    assert scratch.take("a", (7, 5), like, torch.float32).shape == (7, 5)
