//! The port `PacketFilter`: the programs `iptables` and `ip6tables`, found in the path as upstream
//! finds them.
//!
//! In: words. Out: an exit code and the complaint that came with it. What a program lists is thrown
//! away unread: a node's tables can be long. Refuses: a shell, and a program that does not end.

use std::time::Duration;

use ferrolet_linux::children::{Bounds, run_for_code};
use ferrolet_ports::{FilterAnswer, Fut, HostError, IpFamily, PacketFilter, Retry};

/// Upstream's patience; tens of thousands of rules take the older kind of these programs long.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(300), output: 4096 };

/// The programs.
#[derive(Clone, Debug)]
pub struct Iptables {
    v4: String,
    v6: String,
}

impl Iptables {
    /// Those of this node.
    pub fn of_node() -> Self {
        Self { v4: "iptables".to_owned(), v6: "ip6tables".to_owned() }
    }
}

impl PacketFilter for Iptables {
    fn run<'a>(
        &'a self,
        family: IpFamily,
        words: &'a [&'a str],
    ) -> Fut<'a, Result<FilterAnswer, HostError>> {
        let program = match family {
            IpFamily::V4 => &self.v4,
            IpFamily::V6 => &self.v6,
        };
        Box::pin(async move {
            let ended = run_for_code(program, words, BOUNDS).await;
            let ended = ended.map_err(|refusal| HostError {
                attempt: format!("run {program}"),
                cause: refusal.to_string(),
                retry: Retry::Later,
            })?;
            Ok(FilterAnswer { code: ended.code, complaint: ended.output })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    /// Programs that play the part of both.
    fn programs(directory: &Path, script: &str) -> Iptables {
        let program = |name: &str| {
            let path = directory.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path.display().to_string()
        };
        Iptables { v4: program("iptables"), v6: program("ip6tables") }
    }

    #[tokio::test]
    async fn words_arrive_one_by_one_at_the_program_of_the_family() {
        let home = tempfile::tempdir().unwrap();
        let filter = programs(home.path(), "echo \"${0##*/}\" \"$#\" \"$@\" >&2; exit 3");
        let check = async |family, expected: &str| {
            let words = ["-C", "$(id); a b", "!"];
            let answer = filter.run(family, &words).await.unwrap();
            assert_eq!((answer.code, answer.complaint.as_str()), (Some(3), expected));
        };
        check(IpFamily::V4, "iptables 3 -C $(id); a b !\n").await;
        check(IpFamily::V6, "ip6tables 3 -C $(id); a b !\n").await;
    }

    #[tokio::test]
    async fn a_long_list_is_no_fault_and_a_long_complaint_is_cut() {
        let home = tempfile::tempdir().unwrap();
        let lines = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done";
        let filter = programs(home.path(), lines);
        let answer = filter.run(IpFamily::V4, &["-S"]).await.unwrap();
        assert_eq!((answer.code, answer.complaint.len()), (Some(0), 0));

        let filter = programs(home.path(), &format!("{lines} >&2"));
        let answer = filter.run(IpFamily::V4, &["-S"]).await.unwrap();
        assert_eq!(answer.complaint.len(), 4096);
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let nowhere = "/nowhere/iptables".to_owned();
        let filter = Iptables { v4: nowhere.clone(), v6: nowhere };
        let refused = filter.run(IpFamily::V4, &["-S"]).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "run /nowhere/iptables: executable file not found in $PATH: /nowhere/iptables"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_hangs_is_ended() {
        let home = tempfile::tempdir().unwrap();
        let filter = programs(home.path(), "exec sleep 100000");
        let refused = filter.run(IpFamily::V4, &["-S"]).await.unwrap_err();
        assert!(refused.cause.ends_with("no answer within 300 s"), "{refused}");
    }
}
