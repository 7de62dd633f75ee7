"""The closed loop: each person waits for an answer, thinks, and asks again. Some leave before the end."""

from __future__ import annotations

import random
from typing import Any

import requests
from locust import User, constant_pacing, task

from loadtest.exchange import Question, exchange
from loadtest.users.given import Given, given, next_seed

_THINK_S = 0.2


class ChatUser(User):
    """Asks, reads the whole answer, asks the next question."""

    wait_time = constant_pacing(_THINK_S)
    weight = 4
    leave_after: int | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.given: Given = given(self.environment)
        self.session = requests.Session()
        self.rng = random.Random(next_seed())

    @task
    def ask(self) -> None:
        exchange(self.session, self.given.target, self.question(), self.environment)

    def question(self) -> Question:
        content = self.rng.choice(self.given.contents)
        length = self.rng.randint(self.given.least_tokens, self.given.most_tokens)
        leave_after = None if self.leave_after is None else min(self.leave_after, length - 1)
        return Question(content, length, self.rng.getrandbits(31), leave_after)

    def on_stop(self) -> None:  # locust calls it
        self.session.close()


class CuttingUser(ChatUser):
    """Goes away in the middle: what was generated until then must be billed, once."""

    weight = 1
    leave_after = 3
