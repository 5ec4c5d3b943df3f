//! Completion for shells, made from the table of flags.
//!
//! In: which shell, and the words that the executable knows beside `kubelet`. Out: a script to be
//! sourced. The scripts name flags and words and hand values over to the shell's own completion of
//! file names; they never call the executable, which may be another version by then.

use super::table::{FLAGS, Flag, Kind};

/// A shell that completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// Fish.
    Fish,
}

impl Shell {
    /// All of them, with the words by which they are asked for.
    pub const ALL: [(&'static str, Self); 3] =
        [("bash", Self::Bash), ("zsh", Self::Zsh), ("fish", Self::Fish)];
}

/// A word of the executable's command line.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// As it is typed.
    pub name: &'static str,
    /// What it does, in a few words.
    pub help: &'static str,
    /// What may follow it.
    pub next: Next,
}

/// What follows a word of the command line.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    /// Nothing, or the names of files.
    Files,
    /// The kubelet's flags.
    Flags,
    /// One of these.
    Words(&'static [Word]),
}

/// The script that completes `kubelet` and `ferrolet` in this shell; ends in a newline.
pub fn completion(shell: Shell, words: &[Word]) -> String {
    match shell {
        Shell::Bash => bash(words),
        Shell::Zsh => zsh(words),
        Shell::Fish => fish(words),
    }
}

fn takes_value(flag: &Flag) -> bool {
    !matches!(flag.kind, Kind::Bool | Kind::Version)
}

fn names(words: &[Word]) -> String {
    words.iter().map(|word| word.name).collect::<Vec<_>>().join(" ")
}

/// The words whose own words, if any, are followed by the kubelet's flags.
fn taking_flags(words: &[Word]) -> Vec<&'static str> {
    let takes = |word: &&Word| match word.next {
        Next::Flags => true,
        Next::Words(inner) => inner.iter().any(|it| matches!(it.next, Next::Flags)),
        Next::Files => false,
    };
    words.iter().filter(takes).map(|word| word.name).collect()
}

const BASH: &str = r#"# Completion of kubelet and ferrolet for bash.

_kubelet()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    # Bash takes --flag=value for three words.
    if [[ $word == = ]]; then
        word=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD-2]}
    fi
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$_kubelet_flags" -- "$word")
    elif [[ " $_kubelet_switches " == *" $before "* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "true false" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
"#;

fn bash(words: &[Word]) -> String {
    let flags: Vec<String> = FLAGS.iter().map(|flag| format!("--{}", flag.name)).collect();
    let switches = FLAGS.iter().filter(|flag| flag.kind == Kind::Bool);
    let switches: Vec<String> = switches.map(|flag| format!("--{}", flag.name)).collect();
    let mut text = BASH.to_owned();
    text.push_str(&format!("_kubelet_flags=\"{}\"\n", flags.join(" ")));
    text.push_str(&format!("_kubelet_switches=\"{}\"\n\n", switches.join(" ")));
    text.push_str("_ferrolet()\n{\n    local word=${COMP_WORDS[COMP_CWORD]}\n");
    text.push_str("    case $COMP_CWORD:${COMP_WORDS[1]} in\n");
    let offer = |words: &[Word]| {
        format!("mapfile -t COMPREPLY < <(compgen -W \"{}\" -- \"$word\") ;;\n", names(words))
    };
    text.push_str(&format!("        1:*) {}", offer(words)));
    for word in words {
        if let Next::Words(inner) = word.next {
            text.push_str(&format!("        2:{}) {}", word.name, offer(inner)));
        }
    }
    for name in taking_flags(words) {
        text.push_str(&format!("        *:{name}) _kubelet ;;\n"));
    }
    text.push_str(
        "        *) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n    esac\n}\n\n",
    );
    text.push_str("complete -F _kubelet kubelet\ncomplete -F _ferrolet ferrolet\n");
    text
}

/// Text between brackets of one quoted argument of `_arguments`.
fn zsh_text(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]");
    escaped.replace(':', "\\:").replace('\'', "'\\''")
}

fn zsh(words: &[Word]) -> String {
    let mut text = "#compdef kubelet ferrolet\n# Completion of kubelet and ferrolet for zsh.\n\n_kubelet_flags=(\n".to_owned();
    for flag in FLAGS {
        let help = zsh_text(flag.help);
        let line = match takes_value(flag) {
            true => format!("    '--{}=[{help}]:value:_files'\n", flag.name),
            false => format!("    '--{}[{help}]'\n", flag.name),
        };
        text.push_str(&line);
    }
    text.push_str(")\n\n");
    let list = |words: &[Word]| {
        let each = words.iter().map(|it| format!("'{}:{}'", it.name, zsh_text(it.help)));
        each.collect::<Vec<_>>().join(" ")
    };
    text.push_str("_ferrolet_words()\n{\n    local -a words_here\n    words_here=(\"$@\")\n");
    text.push_str("    _describe word words_here\n}\n\n");
    text.push_str("if [[ $service == kubelet ]]; then\n    _arguments -s $_kubelet_flags\n");
    text.push_str(&format!("elif (( CURRENT == 2 )); then\n    _ferrolet_words {}\n", list(words)));
    for word in words {
        if let Next::Words(inner) = word.next {
            text.push_str(&format!(
                "elif (( CURRENT == 3 )) && [[ $words[2] == {} ]]; then\n    _ferrolet_words {}\n",
                word.name,
                list(inner)
            ));
        }
    }
    text.push_str(&format!(
        "elif [[ $words[2] == ({}) ]]; then\n    _arguments -s $_kubelet_flags '*:file:_files'\n",
        taking_flags(words).join("|")
    ));
    text.push_str("else\n    _files\nfi\n");
    text
}

fn fish_text(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

fn fish(words: &[Word]) -> String {
    let mut text = "# Completion of kubelet and ferrolet for fish.\n\n".to_owned();
    for flag in FLAGS {
        let value = if takes_value(flag) { " -r" } else { "" };
        let rest = format!("-l {}{value} -d '{}'", flag.name, fish_text(flag.help));
        text.push_str(&format!("complete -c kubelet {rest}\n"));
        text.push_str(&format!(
            "complete -c ferrolet -n '__fish_seen_subcommand_from {}' {rest}\n",
            taking_flags(words).join(" ")
        ));
    }
    for word in words {
        text.push_str(&format!(
            "complete -c ferrolet -n __fish_use_subcommand -f -a {} -d '{}'\n",
            word.name,
            fish_text(word.help)
        ));
        let Next::Words(inner) = word.next else { continue };
        for it in inner {
            text.push_str(&format!(
                "complete -c ferrolet -n '__fish_seen_subcommand_from {}; and not __fish_seen_subcommand_from {}' -f -a {} -d '{}'\n",
                word.name,
                names(inner),
                it.name,
                fish_text(it.help)
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &[Word] = &[
        Word { name: "kubelet", help: "run it", next: Next::Flags },
        Word {
            name: "config",
            help: "look: the operator's",
            next: Next::Words(&[Word { name: "show", help: "all of it", next: Next::Flags }]),
        },
        Word { name: "runtime", help: "serve", next: Next::Files },
    ];

    #[test]
    fn every_shell_is_told_every_flag_and_word() {
        for (_, shell) in Shell::ALL {
            let text = completion(shell, WORDS);
            for flag in FLAGS {
                assert!(text.contains(flag.name), "{shell:?}: {}", flag.name);
            }
            for word in ["kubelet", "config", "show", "runtime"] {
                assert!(text.contains(word), "{shell:?}: {word}");
            }
            assert!(text.ends_with('\n'));
        }
    }

    #[test]
    fn what_a_shell_would_read_is_escaped() {
        let zsh = completion(Shell::Zsh, WORDS);
        assert!(zsh.contains(r"'config:look\: the operator'\''s'"), "{zsh}");
        let fish = completion(Shell::Fish, WORDS);
        assert!(fish.contains(r"-a config -d 'look: the operator\'s'"), "{fish}");
    }

    #[test]
    fn a_flag_with_a_value_completes_files() {
        let zsh = completion(Shell::Zsh, WORDS);
        assert!(zsh.contains("'--config=["), "{zsh}");
        assert!(zsh.contains("'--offline-start["), "{zsh}");
        let fish = completion(Shell::Fish, WORDS);
        assert!(fish.contains("complete -c kubelet -l config -r -d"), "{fish}");
        assert!(fish.contains("complete -c kubelet -l offline-start -d"), "{fish}");
    }
}
