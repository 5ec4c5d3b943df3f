//! How a session ended, as clients are told: the API's `Status`, or words.

use serde_json::json;

use super::negotiate::StatusForm;

/// The end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Exit code 0, or an attachment that ended.
    Success,
    /// Another exit code.
    Exit(i32),
    /// There is no exit code, and this is why.
    Failure(String),
}

/// What is said on the error stream; nothing is an answer too.
pub(super) fn words(outcome: &Outcome, form: StatusForm) -> Vec<u8> {
    let message = match outcome {
        Outcome::Success => String::new(),
        Outcome::Exit(code) => {
            format!("command terminated with non-zero exit code: exit status {code}")
        }
        Outcome::Failure(why) => why.clone(),
    };
    if form == StatusForm::Words {
        return message.into_bytes();
    }
    let status = match outcome {
        Outcome::Success => json!({"metadata": {}, "status": "Success"}),
        Outcome::Exit(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Outcome::Failure(why) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("Internal error occurred: {why}"),
            "reason": "InternalError",
            "details": {"causes": [{"message": why}]},
            "code": 500,
        }),
    };
    status.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_is_a_cause() {
        let told: serde_json::Value =
            serde_json::from_slice(&words(&Outcome::Exit(3), StatusForm::Object)).unwrap();
        assert_eq!(told["details"]["causes"], json!([{"reason": "ExitCode", "message": "3"}]));
        assert_eq!(told["reason"], "NonZeroExitCode");
        let success = words(&Outcome::Success, StatusForm::Object);
        assert_eq!(success, br#"{"metadata":{},"status":"Success"}"#);
        assert!(words(&Outcome::Success, StatusForm::Words).is_empty());
        let why = Outcome::Failure("no such container".to_owned());
        assert_eq!(words(&why, StatusForm::Words), b"no such container");
    }
}
