"""Accepts images for trials, one at a time."""

import secrets
import threading
from http import HTTPStatus

from ebmlife.report.trial import Defense, Trial
from ebmlife.report.uploads import Form, TrialSettings, decode_image


class Refused(Exception):
    """A request that is answered with an error status."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class Trials:
    """Starts one trial at a time, and keeps the current or the last one."""

    def __init__(self, defense: Defense, form: Form) -> None:
        self.form, self._defense, self._lock = form, defense, threading.Lock()
        self._name = ""
        self._trial: Trial | None = None

    def begin(self, body: bytes, kind: str, settings: TrialSettings) -> str:
        """Starts a trial and returns its name."""
        with self._lock:  # one image is unpacked at a time: they can be large
            if self._trial is not None and not self._trial.over:
                raise Refused(HTTPStatus.CONFLICT, "another trial is running; wait for it or cancel it")
            x = decode_image(body, kind=kind, shape=self._defense.shape)
            self._name, self._trial = secrets.token_hex(8), Trial(self._defense, x, settings)
            return self._name

    def find(self, name: str) -> Trial:
        if self._trial is None or name != self._name:
            raise Refused(HTTPStatus.NOT_FOUND, "this trial no longer exists")
        return self._trial
