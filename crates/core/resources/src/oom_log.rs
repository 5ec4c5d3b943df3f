//! Kills for want of memory, read from the kernel's log: which lines belong together, whom they
//! hit, and whether the whole node was short.
//!
//! In: records of `/dev/kmsg`, one by one. Out: a kill when its last line is read. A kill is told
//! in several lines:
//!
//! ```text
//! tail invoked oom-killer: gfp_mask=…                                   something begins; the node itself, unless the next line says otherwise
//! oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/kubepods/pod1,…     a cgroup reached its limit; `global_oom` instead means the node
//! Memory cgroup out of memory: Killed process 4242 (tail) …             done
//! ```
//!
//! Refuses: lines that programs wrote into that log, which anybody with the device could do.

/// A process that the kernel killed because there was no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// The name of its program.
    pub process: String,
    /// Its number.
    pub pid: u32,
    /// Who was short of memory.
    pub shortage: Shortage,
}

/// Who was short of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The machine.
    Node,
    /// A cgroup with a limit, by its path.
    Cgroup(String),
}

/// Puts the lines of kills together.
#[derive(Debug, Default)]
pub struct OomLog {
    /// A kill whose last line has not come yet.
    begun: Option<Shortage>,
}

impl OomLog {
    /// Takes the next record in.
    pub fn take(&mut self, record: &str) -> Option<OomKill> {
        let line = kernel_line(record)?;
        if line.contains("invoked oom-killer:") {
            self.begun = Some(Shortage::Node);
            return None;
        }
        let begun = self.begun.as_mut()?;
        if let Some(cgroup) = limited_cgroup(line) {
            *begun = Shortage::Cgroup(cgroup.to_owned());
        }
        let (pid, process) = killed(line)?;
        self.begun.take().map(|shortage| OomKill { process: process.to_owned(), pid, shortage })
    }
}

/// The text of a record (`priority,sequence,time,flags;text`) that the kernel itself wrote.
fn kernel_line(record: &str) -> Option<&str> {
    /// The low bits of a priority are its level; what is above them names the writer, and zero is
    /// the kernel.
    const FIRST_OF_PROGRAMS: u32 = 8;
    let (head, text) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    let line = text.lines().next()?;
    (priority < FIRST_OF_PROGRAMS).then_some(line)
}

/// The cgroup whose limit was reached, in the words of kernels since 5.0 and of those before.
fn limited_cgroup(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("oom-kill:constraint=") {
        let (_, rest) = rest.split_once(",oom_memcg=")?;
        return rest.split(",task_memcg=").next();
    }
    let (_, rest) = line.split_once(" killed as a result of limit of ")?;
    Some(rest)
}

fn killed(line: &str) -> Option<(u32, &str)> {
    let (_, rest) = line.split_once("Killed process ")?;
    let (pid, rest) = rest.split_once(" (")?;
    let (process, _) = rest.rsplit_once(')')?;
    Some((pid.parse().ok()?, process))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGINS: &str =
        "4,10,1,-;tail invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000";

    fn kill(shortage: Shortage) -> OomKill {
        OomKill { process: "tail".to_owned(), pid: 4242, shortage }
    }

    /// OOM watcher: victims of the whole node are told apart from those of a limit.
    #[test]
    fn kills_are_read_whoever_was_short() {
        let of_pod = || Shortage::Cgroup("/kubepods/besteffort/pod1".to_owned());
        for (lines, expected) in [
            (
                &[
                    "6,11,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/kubepods/besteffort/pod1,task_memcg=/kubepods/besteffort/pod1/c,task=tail,pid=4242,uid=0",
                    "3,12,1,-;Memory cgroup out of memory: Killed process 4242 (tail) total-vm:1kB, anon-rss:1kB",
                ][..],
                Some(of_pod()),
            ),
            (
                &[
                    "6,11,1,-;Task in /kubepods/besteffort/pod1/c killed as a result of limit of /kubepods/besteffort/pod1",
                    "3,12,1,-;Killed process 4242 (tail) total-vm:1kB",
                ],
                Some(of_pod()),
            ),
            (
                &[
                    "6,11,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=c,mems_allowed=0,global_oom,task_memcg=/kubepods/besteffort/pod1/c,task=tail,pid=4242,uid=0",
                    "6,12,1,-;some other line",
                    "3,13,1,-;Out of memory: Killed process 4242 (tail) total-vm:1kB\n SUBSYSTEM=memory",
                ],
                Some(Shortage::Node),
            ),
            // Somebody else's words.
            (&["12,13,1,-;Out of memory: Killed process 4242 (tail)"], None),
            (&["3,13,1,-;Killed process x (tail)"], None),
            (&["no record"], None),
        ] {
            let mut log = OomLog::default();
            assert_eq!(log.take(BEGINS), None);
            let found = lines.iter().find_map(|line| log.take(line));
            assert_eq!(found, expected.map(kill), "{lines:?}");
        }
    }

    /// OOM watcher: the end of a kill whose beginning nobody read says too little.
    #[test]
    fn half_a_story_is_none() {
        let mut log = OomLog::default();
        let end = "3,13,1,-;Out of memory: Killed process 4242 (tail)";
        assert_eq!(log.take(end), None);
        log.take(BEGINS);
        assert_eq!(log.take(end), Some(kill(Shortage::Node)));
        assert_eq!(log.take(end), None, "it was told");
    }
}
