"""Guarded replay of fixed-shape work for any training loop."""

from lucid_capture.backend import BackendStats, CaptureError, RecorderBackend, Recording, RefusingBackend
from lucid_capture.certificate import Certificate, CompositeCertificate, FunctionCertificate, ModuleCertificate
from lucid_capture.probe import ExecutionProbe
from lucid_capture.reason import POLICY, Outcome, Reason
from lucid_capture.region import GuardedRegion, ReplayWarning, State
from lucid_capture.report import RegionReport, ReplayReport
from lucid_capture.signature import ScalarSignature, Signature, TensorSignature, signature
from lucid_capture.tape import Poison, TapeBackend
from lucid_capture.testing import Comparison, CountedCalls, count_launches, same_bytes

__all__ = [
    "POLICY",
    "BackendStats",
    "CaptureError",
    "Certificate",
    "Comparison",
    "CompositeCertificate",
    "CountedCalls",
    "ExecutionProbe",
    "FunctionCertificate",
    "GuardedRegion",
    "ModuleCertificate",
    "Outcome",
    "Poison",
    "Reason",
    "RecorderBackend",
    "Recording",
    "RefusingBackend",
    "RegionReport",
    "ReplayReport",
    "ReplayWarning",
    "ScalarSignature",
    "Signature",
    "State",
    "TapeBackend",
    "TensorSignature",
    "count_launches",
    "same_bytes",
    "signature",
]
