//! As much of a shell as examples need: commands with words, quotes and variables, `;`, `&&`, `||`, output to a file or to
//! standard error, `while true; do …; done`, `trap`, `exec`, `exit`.
//!
//! [`parse`] is pure; [`run`] does what it answers, in this process.

use std::{
    env,
    fs::{File, OpenOptions},
    io::{self, Write},
    process,
};

use crate::{commands, signals};

/// A step of a script, and when it is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) when: When,
    pub(crate) what: What,
}

/// What came before decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Succeeded,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Command { words: Vec<Word>, output: Output },
    /// While the condition succeeds.
    While { condition: Vec<Step>, body: Vec<Step> },
}

/// Where a command's output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Standard,
    Error,
    File { path: Word, appends: bool },
}

/// Parts of a word, to be put together when it is used.
pub(crate) type Word = Vec<Piece>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Variable(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    End,
    And,
    Or,
    ToError,
    ToFile { appends: bool },
}

/// Reads a script.
pub(crate) fn parse(script: &str) -> Result<Vec<Step>, String> {
    let tokens = tokens(script)?;
    let mut rest = tokens.as_slice();
    let steps = steps(&mut rest, &[])?;
    match rest.first() {
        None => Ok(steps),
        Some(token) => Err(format!("{token:?} is not expected here")),
    }
}

/// The steps up to one of the words that end them, which is taken too.
fn steps(rest: &mut &[Token], ends: &[&str]) -> Result<Vec<Step>, String> {
    let mut found = Vec::new();
    let mut when = When::Always;
    loop {
        match rest.first() {
            None if ends.is_empty() => return Ok(found),
            None => return Err(format!("{} is missing", ends.join(" or "))),
            Some(Token::End) => {
                when = When::Always;
                *rest = &rest[1..];
            }
            Some(Token::And) => {
                when = When::Succeeded;
                *rest = &rest[1..];
            }
            Some(Token::Or) => {
                when = When::Failed;
                *rest = &rest[1..];
            }
            Some(Token::Word(word)) if ends.iter().any(|end| is(word, end)) => {
                *rest = &rest[1..];
                return Ok(found);
            }
            Some(Token::Word(word)) if is(word, "while") => {
                *rest = &rest[1..];
                let condition = steps(rest, &["do"])?;
                let body = steps(rest, &["done"])?;
                found.push(Step { when, what: What::While { condition, body } });
            }
            Some(_) => found.push(Step { when, what: command(rest)? }),
        }
    }
}

fn command(rest: &mut &[Token]) -> Result<What, String> {
    let (mut words, mut output) = (Vec::new(), Output::Standard);
    while let Some(token) = rest.first() {
        match token {
            Token::Word(word) => words.push(word.clone()),
            Token::ToError => output = Output::Error,
            Token::ToFile { appends } => {
                *rest = &rest[1..];
                let Some(Token::Word(path)) = rest.first() else {
                    return Err("a file's name is missing after >".to_owned());
                };
                output = Output::File { path: path.clone(), appends: *appends };
            }
            Token::End | Token::And | Token::Or => break,
        }
        *rest = &rest[1..];
    }
    Ok(What::Command { words, output })
}

fn is(word: &Word, text: &str) -> bool {
    matches!(word.as_slice(), [Piece::Text(found)] if found == text)
}

fn tokens(script: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut word: Option<Word> = None;
    let mut letters = script.chars().peekable();
    let finish = |word: &mut Option<Word>, found: &mut Vec<Token>| {
        found.extend(word.take().map(Token::Word));
    };
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => finish(&mut word, &mut found),
            ';' | '\n' => {
                finish(&mut word, &mut found);
                found.push(Token::End);
            }
            '#' if word.is_none() => while letters.next_if(|it| *it != '\n').is_some() {},
            '&' if letters.next_if_eq(&'&').is_some() => {
                finish(&mut word, &mut found);
                found.push(Token::And);
            }
            '|' if letters.next_if_eq(&'|').is_some() => {
                finish(&mut word, &mut found);
                found.push(Token::Or);
            }
            '>' => {
                finish(&mut word, &mut found);
                let appends = letters.next_if_eq(&'>').is_some();
                match letters.next_if_eq(&'&') {
                    Some(_) if letters.next_if_eq(&'2').is_some() => found.push(Token::ToError),
                    Some(_) => return Err("only >&2 is understood".to_owned()),
                    None => found.push(Token::ToFile { appends }),
                }
            }
            '&' | '|' | '<' | '`' | '(' | ')' => {
                return Err(format!("{letter:?} is more than this shell can do"));
            }
            '\'' => {
                let word = word.get_or_insert_default();
                word.push(Piece::Text(String::new()));
                quoted(&mut letters, word, '\'')?;
            }
            '"' => {
                let word = word.get_or_insert_default();
                word.push(Piece::Text(String::new()));
                quoted(&mut letters, word, '"')?;
            }
            '$' => variable(&mut letters, word.get_or_insert_default())?,
            '\\' => add(word.get_or_insert_default(), letters.next().unwrap_or('\\')),
            _ => add(word.get_or_insert_default(), letter),
        }
    }
    finish(&mut word, &mut found);
    Ok(found)
}

type Letters<'s> = std::iter::Peekable<std::str::Chars<'s>>;

fn quoted(letters: &mut Letters<'_>, word: &mut Word, end: char) -> Result<(), String> {
    loop {
        match letters.next() {
            None => return Err(format!("{end} is missing at the end")),
            Some(letter) if letter == end => return Ok(()),
            Some('$') if end == '"' => variable(letters, word)?,
            Some('\\') if end == '"' => {
                let next = letters.next().unwrap_or('\\');
                if !matches!(next, '"' | '\\' | '$' | '`') {
                    add(word, '\\');
                }
                add(word, next);
            }
            Some(letter) => add(word, letter),
        }
    }
}

fn variable(letters: &mut Letters<'_>, word: &mut Word) -> Result<(), String> {
    let is_braced = letters.next_if_eq(&'{').is_some();
    let mut name = String::new();
    if let Some(mark) = letters.next_if(|it| *it == '?' || *it == '$') {
        name.push(mark);
    } else {
        while let Some(letter) = letters.next_if(|it| it.is_ascii_alphanumeric() || *it == '_') {
            name.push(letter);
        }
    }
    if is_braced && letters.next_if_eq(&'}').is_none() {
        return Err("only ${NAME} is understood".to_owned());
    }
    if !is_braced && letters.peek() == Some(&'(') {
        return Err("$(…) is more than this shell can do".to_owned());
    }
    match name.is_empty() {
        true => add(word, '$'),
        false => word.push(Piece::Variable(name)),
    }
    Ok(())
}

fn add(word: &mut Word, letter: char) {
    match word.last_mut() {
        Some(Piece::Text(text)) => text.push(letter),
        _ => word.push(Piece::Text(letter.to_string())),
    }
}

/// Runs a script; the code of its last command.
pub(crate) fn run(script: &str) -> i32 {
    match parse(script) {
        Ok(steps) => take(&steps, 0),
        Err(why) => {
            eprintln!("sh: {why}");
            2
        }
    }
}

/// `sh [-c SCRIPT]`; without a script the lines of standard input.
pub(crate) fn call(words: &[String]) -> i32 {
    match words {
        [flag, script, ..] if matches!(flag.as_str(), "-c" | "-ec" | "-xc") => run(script),
        [] => {
            let mut code = 0;
            for line in io::stdin().lines().map_while(Result::ok) {
                code = run(&line);
            }
            code
        }
        _ => {
            eprintln!("sh: usage: sh [-c SCRIPT]");
            2
        }
    }
}

fn take(steps: &[Step], mut code: i32) -> i32 {
    for step in steps {
        let is_due = match step.when {
            When::Always => true,
            When::Succeeded => code == 0,
            When::Failed => code != 0,
        };
        if is_due {
            code = perform(&step.what, code);
        }
    }
    code
}

fn perform(what: &What, last: i32) -> i32 {
    match what {
        What::While { condition, body } => {
            let mut code = 0;
            while take(condition, code) == 0 {
                code = take(body, code);
            }
            code
        }
        What::Command { words, output } => {
            let words: Vec<String> = words.iter().map(|word| text(word, last)).collect();
            let written = match output {
                Output::Standard => builtin(&words, &mut io::stdout(), last),
                Output::Error => builtin(&words, &mut io::stderr(), last),
                Output::File { path, appends } => match open(&text(path, last), *appends) {
                    Ok(mut file) => builtin(&words, &mut file, last),
                    Err(why) => {
                        eprintln!("sh: {why}");
                        1
                    }
                },
            };
            // A container's log is read while it is written.
            io::stdout().flush().map_or(written, |()| written)
        }
    }
}

fn open(path: &str, appends: bool) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).append(appends).truncate(!appends);
    options.open(path).map_err(|error| format!("{path}: {error}"))
}

fn text(word: &Word, last: i32) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Variable(name) if name == "?" => last.to_string(),
        Piece::Variable(name) if name == "$" => process::id().to_string(),
        Piece::Variable(name) => env::var(name).unwrap_or_default(),
    };
    word.iter().map(piece).collect()
}

/// What only a shell can do, and every command.
fn builtin(words: &[String], output: &mut dyn Write, last: i32) -> i32 {
    match words.first().map(String::as_str) {
        None => 0,
        Some(":") => 0,
        Some("exit") => {
            let code = words.get(1).and_then(|it| it.parse().ok()).unwrap_or(last);
            process::exit(code)
        }
        Some("exec") => process::exit(commands::run(&words[1..], output)),
        Some("set") => 0,
        Some("trap") => {
            signals::trap(words.get(1).map(String::as_str).unwrap_or_default());
            0
        }
        Some(_) => commands::run(words, output),
    }
}
