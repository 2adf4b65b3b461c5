"""Guarded replay of fixed-shape work for any training loop."""

from lucid_capture.backend import BackendStats, CaptureError, RecorderBackend, Recording, RefusingBackend
from lucid_capture.certificate import (
    Certificate,
    CompositeCertificate,
    FunctionCertificate,
    ModuleCertificate,
)
from lucid_capture.cuda import CudaBackend
from lucid_capture.doctor import Diagnosis, Fault, Finding, doctor
from lucid_capture.group import RegionGroup
from lucid_capture.hazards import Hazard
from lucid_capture.norm import GradientNorm
from lucid_capture.padded import Capacity, Padded, padded
from lucid_capture.probe import ExecutionProbe
from lucid_capture.reason import POLICY, Outcome, Reason
from lucid_capture.region import GuardedRegion, ReplayWarning, State
from lucid_capture.report import RegionReport, ReplayReport
from lucid_capture.scalars import HostScalars
from lucid_capture.signature import ScalarSignature, Signature, TensorSignature, signature
from lucid_capture.snapshot import Snapshot
from lucid_capture.step import GraphedStep
from lucid_capture.tape import Poison, TapeBackend
from lucid_capture.testing import Comparison, CountedCalls, count_launches, same_bytes
from lucid_capture.verify import Verdict, verify

__all__ = [
    "POLICY",
    "BackendStats",
    "Capacity",
    "CaptureError",
    "Certificate",
    "Comparison",
    "CompositeCertificate",
    "CountedCalls",
    "CudaBackend",
    "Diagnosis",
    "ExecutionProbe",
    "Fault",
    "Finding",
    "FunctionCertificate",
    "GradientNorm",
    "GraphedStep",
    "GuardedRegion",
    "Hazard",
    "HostScalars",
    "ModuleCertificate",
    "Outcome",
    "Padded",
    "Poison",
    "Reason",
    "RecorderBackend",
    "Recording",
    "RefusingBackend",
    "RegionGroup",
    "RegionReport",
    "ReplayReport",
    "ReplayWarning",
    "ScalarSignature",
    "Signature",
    "Snapshot",
    "State",
    "TapeBackend",
    "TensorSignature",
    "Verdict",
    "count_launches",
    "doctor",
    "padded",
    "same_bytes",
    "signature",
    "verify",
]
