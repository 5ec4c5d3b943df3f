//! `hostPath`: whether what stands on the node is what the pod asked for. Pure; looking and making
//! is the shell's.

use ferrolet_ports::{HostPathType, PathKind};

/// What to do about a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is as asked.
    Fine,
    /// Make a directory there.
    MakeDirectory,
    /// Make a file there.
    MakeFile,
    /// It is something else.
    Wrong(String),
}

/// What was found at the path: nothing, something, or no answer.
pub(crate) type Found = Result<Option<PathKind>, String>;

/// Compares what was asked for with what is there.
pub(crate) fn judge(path: &str, expected: &HostPathType, found: &Found) -> Verdict {
    let is_there = matches!(found, Ok(Some(_)));
    let (kind, words) = match expected {
        HostPathType::Anything => return Verdict::Fine,
        HostPathType::Directory { made_when_missing } if *made_when_missing && !is_there => {
            return Verdict::MakeDirectory;
        }
        HostPathType::File { made_when_missing } if *made_when_missing && !is_there => {
            return Verdict::MakeFile;
        }
        HostPathType::Directory { .. } => (PathKind::Directory, "directory"),
        HostPathType::File { .. } => (PathKind::File, "file"),
        HostPathType::Socket => (PathKind::Socket, "socket file"),
        HostPathType::CharDevice => (PathKind::CharDevice, "character device"),
        HostPathType::BlockDevice => (PathKind::BlockDevice, "block device"),
        HostPathType::Unknown(word) => {
            return Verdict::Wrong(format!("{word} is an invalid volume type"));
        }
    };
    let undetermined = |why: &str| {
        Verdict::Wrong(format!(
            "hostPath type check failed, {path} is not a {words}, unable to determine its type: {why}"
        ))
    };
    match found {
        Ok(Some(found)) if *found == kind => Verdict::Fine,
        Ok(Some(PathKind::Other)) => undetermined(
            "only recognise file, directory, socket, block device and character device",
        ),
        Ok(Some(found)) => Verdict::Wrong(format!(
            "hostPath type check failed: {path} is not a {words}, it's a {}",
            word_of(*found)
        )),
        Ok(None) => undetermined(&format!("path {path:?} does not exist")),
        Err(why) => undetermined(why),
    }
}

fn word_of(kind: PathKind) -> &'static str {
    match kind {
        PathKind::Directory => "Directory",
        PathKind::File => "File",
        PathKind::Socket => "Socket",
        PathKind::CharDevice => "CharDevice",
        PathKind::BlockDevice => "BlockDevice",
        PathKind::Other => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_checked_in_upstreams_words() {
        use PathKind as Kind;
        let check = |word: &str, found: Found, verdict: Verdict| {
            let expected = HostPathType::parse(Some(word));
            assert_eq!(judge("/p", &expected, &found), verdict, "{word} {found:?}");
        };
        let wrong = |text: &str| Verdict::Wrong(format!("hostPath type check failed{text}"));
        let is = |kind: Kind| Ok(Some(kind));
        check("", Ok(None), Verdict::Fine);
        check("Directory", is(Kind::Directory), Verdict::Fine);
        check("DirectoryOrCreate", is(Kind::Directory), Verdict::Fine);
        check("DirectoryOrCreate", Ok(None), Verdict::MakeDirectory);
        check("DirectoryOrCreate", is(Kind::File), wrong(": /p is not a directory, it's a File"));
        check("File", is(Kind::File), Verdict::Fine);
        check("FileOrCreate", Ok(None), Verdict::MakeFile);
        check("FileOrCreate", is(Kind::Directory), wrong(": /p is not a file, it's a Directory"));
        check("Socket", is(Kind::Socket), Verdict::Fine);
        check(
            "Socket",
            is(Kind::CharDevice),
            wrong(": /p is not a socket file, it's a CharDevice"),
        );
        check("CharDevice", is(Kind::CharDevice), Verdict::Fine);
        check(
            "CharDevice",
            is(Kind::Socket),
            wrong(": /p is not a character device, it's a Socket"),
        );
        check("BlockDevice", is(Kind::BlockDevice), Verdict::Fine);
        check("BlockDevice", is(Kind::File), wrong(": /p is not a block device, it's a File"));
        check(
            "Directory",
            Ok(None),
            wrong(
                ", /p is not a directory, unable to determine its type: path \"/p\" does not exist",
            ),
        );
        check(
            "File",
            is(Kind::Other),
            wrong(
                ", /p is not a file, unable to determine its type: only recognise file, directory, socket, block device and character device",
            ),
        );
        check("Pipe", Ok(None), Verdict::Wrong("Pipe is an invalid volume type".to_owned()));
    }
}
