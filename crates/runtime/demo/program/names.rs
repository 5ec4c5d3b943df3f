//! What the image and the commands in it are called; for the program, its build script and the library.

/// The image's name, without a tag.
pub(crate) const REPOSITORY: &str = "ferrolet.dev/demo";
/// Its tags. One that is not `latest` is not pulled anew for every container.
pub(crate) const TAGS: [&str; 2] = ["1", "latest"];
/// The commands, by which the image has links.
pub(crate) const NAMES: [&str; 18] = [
    "sh",
    "httpd",
    "echo",
    "sleep",
    "true",
    "false",
    "cat",
    "ls",
    "touch",
    "rm",
    "mkdir",
    "env",
    "hostname",
    "id",
    "date",
    "addresses",
    "fetch",
    "burn",
];
