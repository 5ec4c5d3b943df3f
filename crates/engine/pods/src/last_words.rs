//! What a dead container has to say, within upstream's limits.

use ferrolet_types::observed::Exit;

use crate::World;

/// What is told of an end: the runtime's sentence, where it has one, and then the container's.
pub(crate) fn joined(runtimes: &str, words: &str) -> String {
    match (runtimes, words) {
        ("", only) | (only, "") => only.to_owned(),
        (runtimes, words) => format!("{runtimes}: {words}"),
    }
}

/// Upstream's limits for what a dead container has to say.
const LAST_WORDS_LIMIT: usize = 4096;
const LAST_LINES: usize = 80;
const LAST_LINES_LIMIT: usize = 2048;

/// What a dead container has to say: its termination message, else, after a failure, the end of its log.
pub(crate) async fn last_words(
    world: &World,
    exit: &Exit,
    path: &str,
    log: Option<&str>,
) -> String {
    if !path.is_empty() {
        match world.files.read_termination_log(path, LAST_WORDS_LIMIT).await {
            Ok(words) if !words.is_empty() => return words,
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "Termination message cannot be read"),
        }
    }
    match log {
        Some(log) if exit.code != 0 && !log.is_empty() => {
            world.files.read_log_tail(log, LAST_LINES, LAST_LINES_LIMIT).await.unwrap_or_default()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8.21, termination message: it comes after what the runtime says.
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
