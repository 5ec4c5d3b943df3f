//! The termination message of a dead container, within upstream's limits.

use ferrolet_types::observed::Exit;

use crate::World;

/// What is told of an end: the runtime's sentence, where it has one, and then the container's.
pub(crate) fn joined(runtimes: &str, message: &str) -> String {
    match (runtimes, message) {
        ("", only) | (only, "") => only.to_owned(),
        (runtimes, message) => format!("{runtimes}: {message}"),
    }
}

/// Upstream's limits: bytes of the message, lines and bytes of the log's tail.
const MESSAGE_LIMIT: usize = 4096;
const LOG_TAIL_LINES: usize = 80;
const LOG_TAIL_LIMIT: usize = 2048;

/// The message that a dead container left, else, after a failure, the tail of its log.
pub(crate) async fn termination_message(
    world: &World,
    exit: &Exit,
    path: &str,
    log: Option<&str>,
) -> String {
    if !path.is_empty() {
        match world.files.read_termination_log(path, MESSAGE_LIMIT).await {
            Ok(message) if !message.is_empty() => return message,
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "Termination message cannot be read"),
        }
    }
    match log {
        Some(log) if exit.code != 0 && !log.is_empty() => {
            world.files.read_log_tail(log, LOG_TAIL_LINES, LOG_TAIL_LIMIT).await.unwrap_or_default()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_sentence_comes_first() {
        for (runtimes, words, told) in [
            ("", "", ""),
            ("", "bye", "bye"),
            ("no such file", "", "no such file"),
            ("no such file", "bye", "no such file: bye"),
        ] {
            assert_eq!(joined(runtimes, words), told);
        }
    }
}
