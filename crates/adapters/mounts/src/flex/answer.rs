//! What a driver's program printed, read as the protocol says. Pure.
//!
//! In: the command, how the program ended, and its output. Out: [`Status`], or why there is none,
//! in upstream's words. Keys are found in any case, and what is not there has the protocol's
//! defaults. Refuses: guessing at half an answer.

use ferrolet_linux::children::Ended;
use ferrolet_ports::{FlexAbilities, FlexCommand, FlexError};
use serde_json::{Map, Value};

use crate::programs::status;

/// A good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) device: String,
    pub(super) abilities: FlexAbilities,
}

/// Reads how a call went.
pub(super) fn read(command: FlexCommand, ended: &Ended) -> Result<Status, FlexError> {
    let answer = parse(command, &ended.output)?;
    match ended.code {
        Some(0) => Ok(answer),
        // It says that all is well, and ends as if it were not.
        code => Err(FlexError::Failed(status(code))),
    }
}

fn parse(command: FlexCommand, output: &str) -> Result<Status, FlexError> {
    let value: Value = serde_json::from_str(output)
        .map_err(|error| FlexError::Failed(unreadable(output, &error)))?;
    let empty = Map::new();
    let fields = match &value {
        Value::Object(fields) => fields,
        Value::Null => &empty,
        other => return Err(FlexError::Failed(mismatch(other, "DriverStatus"))),
    };
    let text = |key: &str| match found(fields, key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(FlexError::Failed(mismatch(other, "string"))),
    };
    let (said, message, device) = (text("status")?, text("message")?, text("device")?);
    let mut abilities = FlexAbilities::default();
    match found(fields, "capabilities") {
        None | Some(Value::Null) => {}
        Some(Value::Object(given)) => {
            for (key, ability) in [
                ("attach", &mut abilities.attaches),
                ("selinuxRelabel", &mut abilities.relabels),
                ("fsGroup", &mut abilities.takes_group),
                ("requiresFSResize", &mut abilities.grows_files),
            ] {
                match found(given, key) {
                    None | Some(Value::Null) => {}
                    Some(Value::Bool(value)) => *ability = *value,
                    Some(other) => return Err(FlexError::Failed(mismatch(other, "bool"))),
                }
            }
        }
        Some(other) => return Err(FlexError::Failed(mismatch(other, "DriverCapabilities"))),
    }
    match said.as_str() {
        "Success" => Ok(Status { device, abilities }),
        "Not supported" => Err(FlexError::NotSupported),
        _ => Err(FlexError::Failed(format!(
            "{} command failed, status: {said}, reason: {message}",
            command.word()
        ))),
    }
}

/// Programs were written against a reader that does not mind the case of keys.
fn found<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let alike = || fields.iter().find(|(it, _)| it.eq_ignore_ascii_case(key));
    fields.get(key).or_else(|| alike().map(|(_, value)| value))
}

/// Why an output is no JSON: upstream's words for what happens most, the parser's for the rest.
fn unreadable(output: &str, error: &serde_json::Error) -> String {
    let first = output.trim_start().chars().next();
    match first {
        None => "unexpected end of JSON input".to_owned(),
        Some(first) if !matches!(first, '{' | '[' | '"' | '-' | '0'..='9' | 't' | 'f' | 'n') => {
            format!("invalid character {first:?} looking for beginning of value")
        }
        Some(_) if error.is_eof() => "unexpected end of JSON input".to_owned(),
        Some(_) => format!("the driver's answer cannot be read: {error}"),
    }
}

fn mismatch(value: &Value, wanted: &str) -> String {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {kind} into Go value of type {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_upstream_reads_them() {
        let check = |code: i32, output: &str, expected: Result<&str, FlexError>| {
            let ended = Ended { code: Some(code), output: output.to_owned() };
            let found = read(FlexCommand::Mount, &ended).map(|it| it.device);
            assert_eq!(found, expected.map(str::to_owned), "{code} {output}");
        };
        let failed = |why: &str| Err(FlexError::Failed(why.to_owned()));
        check(0, r#"{"status": "Success", "device": "/dev/x"}"#, Ok("/dev/x"));
        check(0, r#" {"Status": "Success", "more": [1]} "#, Ok(""));
        check(0, r#"{"status": "Not supported"}"#, Err(FlexError::NotSupported));
        check(1, r#"{"status": "Not supported"}"#, Err(FlexError::NotSupported));
        check(
            0,
            r#"{"status": "Failure", "message": "no disk"}"#,
            failed("mount command failed, status: Failure, reason: no disk"),
        );
        check(
            3,
            r#"{"status": "Failure"}"#,
            failed("mount command failed, status: Failure, reason: "),
        );
        check(0, "null", failed("mount command failed, status: , reason: "));
        check(7, r#"{"status": "Success"}"#, failed("exit status 7"));
        check(0, "", failed("unexpected end of JSON input"));
        check(1, " \n", failed("unexpected end of JSON input"));
        check(0, r#"{"status": "Succ"#, failed("unexpected end of JSON input"));
        check(0, "rubbish", failed("invalid character 'r' looking for beginning of value"));
        check(0, "[]", failed("json: cannot unmarshal array into Go value of type DriverStatus"));
        check(
            0,
            r#"{"status": 1}"#,
            failed("json: cannot unmarshal number into Go value of type string"),
        );
    }

    #[test]
    fn abilities_are_all_there_unless_the_driver_says_otherwise() {
        let check = |given: &str, expected: FlexAbilities| {
            let ended =
                Ended { code: Some(0), output: format!(r#"{{"status": "Success"{given}}}"#) };
            let found = read(FlexCommand::Init, &ended).unwrap();
            assert_eq!(found.abilities, expected, "{given}");
        };
        let all = FlexAbilities::default();
        check("", all);
        check(r#", "capabilities": null"#, all);
        check(r#", "capabilities": {}"#, all);
        check(
            r#", "capabilities": {"attach": false, "fsGroup": false}"#,
            FlexAbilities { attaches: false, takes_group: false, ..all },
        );
        check(
            r#", "Capabilities": {"SELinuxRelabel": false}"#,
            FlexAbilities { relabels: false, ..all },
        );
    }
}
