//! The program of the demonstration image: what examples need, in one static file.
//!
//! It is called by one of its names (`/bin/sh`, `/bin/httpd`, …) or with the name as first word (`demo httpd`). Its
//! shell runs every command in its own process, so there is nothing to fork. SIGTERM and SIGINT end it at once, or run
//! what `trap` said. It is no busybox: what it cannot do it says.

mod commands;
#[expect(dead_code, reason = "the image's names are for who makes it")]
mod names;
mod shell;
mod signals;
mod web;

use std::{env, process};

fn main() {
    signals::listen();
    let mut words: Vec<String> =
        env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let called = words.first().map(String::as_str).unwrap_or_default();
    let name = called.rsplit('/').next().unwrap_or_default().to_owned();
    if name == "demo" {
        words.remove(0);
    } else if let Some(first) = words.first_mut() {
        *first = name;
    }
    if words.is_empty() {
        eprintln!("demo: one of {}", names::NAMES.join(", "));
        process::exit(2);
    }
    process::exit(commands::run(&words, &mut std::io::stdout()));
}
