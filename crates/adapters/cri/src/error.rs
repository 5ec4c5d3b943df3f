//! From a gRPC status to the errors of the ports. Pure.
//!
//! A status comes from the runtime, in its own words, or from the transport on our side; the second
//! kind carries a source and is reworded as upstream words it, always as `Unavailable` or
//! `DeadlineExceeded`.

use std::error::Error;

use ferrolet_ports::{ImageError, RuntimeError, RuntimeErrorKind};
use tonic::{Code, Status, TimeoutExpired};

use crate::endpoint::DialError;

const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";

/// A call that failed, as its caller sees it.
pub(crate) fn runtime_error(call: &'static str, status: &Status) -> RuntimeError {
    let Some(source) = status.source() else {
        return RuntimeError {
            call,
            kind: kind_of(status.code()),
            message: status.message().to_owned(),
        };
    };
    if find::<TimeoutExpired>(source).is_some() {
        return deadline_exceeded(call);
    }
    if let Some(dial) = find::<DialError>(source) {
        return unavailable(call, format!("connection error: desc = \"{dial}\""));
    }
    match status.code() {
        // What tonic makes of a connection that broke under a call; no runtime sent these.
        Code::Unknown | Code::Cancelled | Code::Internal | Code::Unavailable => {
            unavailable(call, format!("error reading from server: {}", root(source)))
        }
        code => RuntimeError { call, kind: kind_of(code), message: status.message().to_owned() },
    }
}

/// A call that nobody answered in time.
pub(crate) fn deadline_exceeded(call: &'static str) -> RuntimeError {
    RuntimeError {
        call,
        kind: RuntimeErrorKind::DeadlineExceeded,
        message: "context deadline exceeded".to_owned(),
    }
}

/// An answer that lacks what it must have.
pub(crate) fn incomplete(call: &'static str, message: String) -> RuntimeError {
    RuntimeError { call, kind: RuntimeErrorKind::Internal, message }
}

/// A pull that failed. Runtimes mark two causes by the first word of an error without a code of its
/// own.
pub(crate) fn pull_error(error: RuntimeError) -> ImageError {
    if error.kind != RuntimeErrorKind::Unknown {
        return ImageError::Runtime(error);
    }
    let after = |mark: &str| {
        error.message.strip_prefix(mark).map(|rest| rest.trim_start_matches([':', ' ']).to_owned())
    };
    if let Some(detail) = after(REGISTRY_UNAVAILABLE) {
        ImageError::RegistryUnavailable(detail)
    } else if let Some(detail) = after(SIGNATURE_VALIDATION_FAILED) {
        ImageError::SignatureValidationFailed(detail)
    } else {
        ImageError::Unspecified(error.message)
    }
}

/// Turns "no such thing" into success: what should be gone is gone.
pub(crate) fn or_gone<T>(result: Result<T, RuntimeError>) -> Result<(), RuntimeError> {
    found(result).map(drop)
}

/// Turns "no such thing" into `None`.
pub(crate) fn found<T>(result: Result<T, RuntimeError>) -> Result<Option<T>, RuntimeError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind == RuntimeErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn unavailable(call: &'static str, message: String) -> RuntimeError {
    RuntimeError { call, kind: RuntimeErrorKind::Unavailable, message }
}

fn kind_of(code: Code) -> RuntimeErrorKind {
    match code {
        Code::Unavailable => RuntimeErrorKind::Unavailable,
        Code::DeadlineExceeded => RuntimeErrorKind::DeadlineExceeded,
        Code::NotFound => RuntimeErrorKind::NotFound,
        Code::AlreadyExists => RuntimeErrorKind::AlreadyExists,
        Code::Unimplemented => RuntimeErrorKind::Unimplemented,
        Code::InvalidArgument | Code::OutOfRange => RuntimeErrorKind::InvalidArgument,
        Code::FailedPrecondition | Code::Aborted => RuntimeErrorKind::FailedPrecondition,
        Code::PermissionDenied | Code::Unauthenticated => RuntimeErrorKind::PermissionDenied,
        Code::ResourceExhausted => RuntimeErrorKind::ResourceExhausted,
        Code::Cancelled => RuntimeErrorKind::Canceled,
        Code::Internal | Code::DataLoss => RuntimeErrorKind::Internal,
        Code::Unknown | Code::Ok => RuntimeErrorKind::Unknown,
    }
}

fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    chain(error).find_map(|cause| cause.downcast_ref())
}

fn root(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map_or_else(String::new, ToString::to_string)
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_keeps_its_code_and_words() {
        let check = |code: Code, text: &str| {
            let error = runtime_error("Version", &Status::new(code, "why"));
            assert_eq!(error.to_string(), format!("rpc error: code = {text} desc = why"));
            assert_eq!(error.call, "Version");
        };
        check(Code::Unavailable, "Unavailable");
        check(Code::DeadlineExceeded, "DeadlineExceeded");
        check(Code::NotFound, "NotFound");
        check(Code::AlreadyExists, "AlreadyExists");
        check(Code::Unimplemented, "Unimplemented");
        check(Code::InvalidArgument, "InvalidArgument");
        check(Code::FailedPrecondition, "FailedPrecondition");
        check(Code::PermissionDenied, "PermissionDenied");
        check(Code::ResourceExhausted, "ResourceExhausted");
        check(Code::Cancelled, "Canceled");
        check(Code::Internal, "Internal");
        check(Code::Unknown, "Unknown");
    }

    #[test]
    fn only_not_found_counts_as_gone() {
        let error = |code| Err::<(), _>(runtime_error("StopContainer", &Status::new(code, "")));
        assert_eq!(or_gone(Ok(())), Ok(()));
        assert_eq!(or_gone(error(Code::NotFound)), Ok(()));
        assert!(or_gone(error(Code::Unknown)).is_err());
    }

    #[test]
    fn a_failed_pull_is_told_by_the_first_word_of_a_codeless_error() {
        let check = |code: Code, message: &str, text: &str| {
            let error = pull_error(runtime_error("PullImage", &Status::new(code, message)));
            assert_eq!(error.to_string(), text);
        };
        check(Code::Unknown, "RegistryUnavailable: no route", "registry is unavailable: no route");
        check(
            Code::Unknown,
            "SignatureValidationFailed: unsigned",
            "image signature validation failed: unsigned",
        );
        check(Code::Unknown, "failed to pull", "failed to pull");
        check(
            Code::NotFound,
            "RegistryUnavailable: not by this code",
            "rpc error: code = NotFound desc = RegistryUnavailable: not by this code",
        );
    }
}
