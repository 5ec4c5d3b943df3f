//! What an entry's name asks for: a place in the layer, or the absence of one below. Pure.

use super::{UnpackError, lossy};

const WHITEOUT: &[u8] = b".wh.";
/// What AUFS kept for itself, and one name of it that became everybody's.
const AUFS: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// A path beneath the layer's root: plain components, joined by single slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    path: Vec<u8>,
    /// Where the last component begins.
    name: usize,
}

/// What a name asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The root itself.
    Root,
    /// An entry.
    Entry(Place),
    /// That nothing of this name comes from below.
    Absent(Place),
    /// That nothing in this directory comes from below.
    Opaque(Vec<u8>),
    /// Nothing: another program's notes.
    Nothing,
}

impl Place {
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.path[self.name..]
    }

    pub(super) fn parent(&self) -> &[u8] {
        &self.path[..self.name.saturating_sub(1)]
    }

    fn new(components: &[&[u8]]) -> Option<Self> {
        let name = components.last()?;
        let path = components.join(&b'/');
        Some(Self { name: path.len() - name.len(), path })
    }
}

/// Reads an entry's name.
pub(super) fn wanted(path: &[u8]) -> Result<Wanted, UnpackError> {
    let mut components = components(path)?;
    let Some(&last) = components.last() else { return Ok(Wanted::Root) };
    if last == OPAQUE {
        components.pop();
        return Ok(Wanted::Opaque(components.join(&b'/')));
    }
    if components.iter().any(|it| it.starts_with(AUFS)) {
        return Ok(Wanted::Nothing);
    }
    if let Some(hidden) = last.strip_prefix(WHITEOUT) {
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(UnpackError::Whiteout { path: lossy(path) });
        }
        let end = components.len() - 1;
        components[end] = hidden;
        return Ok(Place::new(&components).map_or(Wanted::Root, Wanted::Absent));
    }
    Ok(Place::new(&components).map_or(Wanted::Root, Wanted::Entry))
}

/// Reads a hard link's target.
pub(super) fn target(link: &[u8]) -> Result<Place, UnpackError> {
    Place::new(&components(link)?).ok_or_else(|| UnpackError::Outside { path: lossy(link) })
}

/// Plain components. A leading slash means the layer's root, as it always did in archives.
fn components(path: &[u8]) -> Result<Vec<&[u8]>, UnpackError> {
    let components: Vec<&[u8]> =
        path.split(|&byte| byte == b'/').filter(|it| !matches!(*it, b"" | b".")).collect();
    if components.iter().any(|it| *it == b"..") {
        return Err(UnpackError::Outside { path: lossy(path) });
    }
    Ok(components)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(path: &str) -> String {
        let text = |bytes: &[u8]| lossy(bytes);
        match wanted(path.as_bytes()) {
            Ok(Wanted::Root) => "root".to_owned(),
            Ok(Wanted::Entry(place)) => {
                format!("{} in {:?}", text(place.name()), text(place.parent()))
            }
            Ok(Wanted::Absent(place)) => {
                format!("no {} in {:?}", text(place.name()), text(place.parent()))
            }
            Ok(Wanted::Opaque(path)) => format!("only ours in {:?}", text(&path)),
            Ok(Wanted::Nothing) => "nothing".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn names_are_read_beneath_the_root() {
        let cases = [
            ("./", "root"),
            ("/", "root"),
            ("a", "a in \"\""),
            ("./a//b/./c/", "c in \"a/b\""),
            ("/etc/passwd", "passwd in \"etc\""),
            ("...", "... in \"\""),
            ("a/.wh.b", "no b in \"a\""),
            (".wh.b", "no b in \"\""),
            ("a/b/.wh..wh..opq", "only ours in \"a/b\""),
            (".wh..wh..opq", "only ours in \"\""),
            (".wh..wh.plnk/12.34", "nothing"),
            (".wh..wh.aufs", "nothing"),
            ("a/.wh.", "\"a/.wh.\" is not a whiteout of anything"),
            ("a/.wh...", "\"a/.wh...\" is not a whiteout of anything"),
            ("../a", "\"../a\" leads out of the layer"),
            ("a/../../b", "\"a/../../b\" leads out of the layer"),
            ("a/..", "\"a/..\" leads out of the layer"),
        ];
        for (path, expected) in cases {
            assert_eq!(show(path), expected, "{path}");
        }
    }
}
