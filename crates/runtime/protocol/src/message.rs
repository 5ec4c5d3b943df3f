//! Requests, answers and events, each with the number by which packets know it.
//!
//! Descriptors travel beside a message, in the order that its documentation gives.

use prost::{DecodeError, Enumeration, Message};
use thiserror::Error;

use crate::launch::{LaunchSpec, Process};
use crate::record::{ContainerRecord, Exit};
use crate::sandbox::SandboxSpec;

/// A message that cannot be read.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum MessageError {
    /// A kind from another release.
    #[error("unknown kind {0}")]
    Kind(u16),
    /// Bytes that are not that message.
    #[error("message of kind {kind}")]
    Body {
        /// The kind that it was said to be.
        kind: u16,
        /// What is wrong with it.
        source: DecodeError,
    },
}

/// An enum of messages, each with its kind.
macro_rules! messages {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident($body:ty) = $kind:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name { $($(#[$doc])* $variant($body),)* }

        impl $name {
            /// The number by which packets know it.
            #[must_use]
            pub fn kind(&self) -> u16 {
                match self { $(Self::$variant(_) => $kind,)* }
            }

            /// The message's bytes.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                match self { $(Self::$variant(body) => body.encode_to_vec(),)* }
            }

            /// The message of that kind.
            ///
            /// # Errors
            ///
            /// When the kind is unknown or the bytes are not that message.
            pub fn decode(kind: u16, body: &[u8]) -> Result<Self, MessageError> {
                match kind {
                    $($kind => <$body>::decode(body)
                        .map(Self::$variant)
                        .map_err(|source| MessageError::Body { kind, source }),)*
                    _ => Err(MessageError::Kind(kind)),
                }
            }
        }
    };
}

messages! {
    /// What a service asks of a spawner or of a monitor.
    Request {
        /// Who is there. The first request of a connection; the answer comes once the sandbox
        /// exists.
        Hello(Hello) = 1,
        /// Everything the monitor knows.
        Snapshot(Empty) = 2,
        /// Start a container. Descriptor: the mount namespace in which sources are found.
        Launch(Box<LaunchSpec>) = 3,
        /// Run a command in a container.
        Exec(Exec) = 4,
        /// Be connected to a container's stdio.
        Attach(Attach) = 5,
        /// Send a signal.
        Signal(Signal) = 6,
        /// Close a container's stdin.
        CloseStdin(Container) = 7,
        /// Open a container's log anew.
        ReopenLog(Container) = 8,
        /// Another size at which logs are rotated.
        LogLimit(LogLimit) = 9,
        /// Forget a container that ended.
        Forget(Container) = 11,
        /// Kill everything, and leave.
        End(Empty) = 12,
        /// To the spawner: a pod's monitor.
        Spawn(SandboxSpec) = 100,
    }
}

messages! {
    /// What comes back.
    Answer {
        /// To `Hello`. Descriptors: those namespaces.
        Hello(HelloAnswer) = 1,
        /// To `Snapshot`. Descriptors: a pidfd for each container that has a process.
        Snapshot(SnapshotAnswer) = 2,
        /// To `Launch` and `Exec`. Descriptors: a pidfd; for `Exec` then the terminal's master, or
        /// the near ends of stdin, stdout and stderr as far as they were asked for.
        Started(Started) = 3,
        /// To `Attach`. Descriptors: the near ends of stdin, stdout and stderr as far as they were
        /// asked for; with a terminal stdin is its master.
        Attached(Attached) = 4,
        /// Done.
        Done(Empty) = 5,
        /// Not done.
        Failed(Failed) = 6,
        /// A kind that this monitor does not know.
        Unknown(Empty) = 7,
        /// To `Spawn`. Descriptor: the monitor's pidfd.
        Spawned(Started) = 100,
    }
}

messages! {
    /// What a monitor tells unasked. Hints: a snapshot is the truth.
    Event {
        /// A container or command ended; its record is written.
        Exited(Exited) = 200,
        /// Output that could not be written.
        LogTrouble(LogTrouble) = 201,
    }
}

/// Nothing more to say.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Hello {
    /// The highest version of the protocol that it speaks.
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// Its own version, for people.
    #[prost(string, tag = "2")]
    pub binary: String,
}

/// Who answers.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HelloAnswer {
    /// The lower of both versions: the one to speak.
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// The monitor's sandbox.
    #[prost(string, tag = "2")]
    pub sandbox: String,
    /// The monitor's process.
    #[prost(int32, tag = "3")]
    pub pid: i32,
    /// The namespaces that come with it, each of the pod's own.
    #[prost(enumeration = "Namespace", repeated, tag = "4")]
    pub namespaces: Vec<i32>,
}

/// A kind of namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Namespace {
    /// Network.
    Network = 0,
    /// System V IPC and message queues.
    Ipc = 1,
    /// Host name.
    Uts = 2,
    /// Users.
    User = 3,
    /// Processes.
    Pid = 4,
}

/// Everything a monitor knows.
#[derive(Clone, PartialEq, Message)]
pub struct SnapshotAnswer {
    /// Its containers.
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<ContainerRecord>,
    /// The commands that run.
    #[prost(message, repeated, tag = "2")]
    pub commands: Vec<CommandRecord>,
}

/// A command that runs in a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CommandRecord {
    /// The number that whoever started it gave it.
    #[prost(uint64, tag = "1")]
    pub command: u64,
    /// Its container.
    #[prost(string, tag = "2")]
    pub container: String,
    /// Its process.
    #[prost(int32, tag = "3")]
    pub pid: i32,
}

/// A command to run in a container.
#[derive(Clone, PartialEq, Message)]
pub struct Exec {
    /// The container.
    #[prost(string, tag = "1")]
    pub container: String,
    /// A number of the caller's choice, not 0 and not in use, that events and signals name.
    #[prost(uint64, tag = "2")]
    pub command: u64,
    /// The process.
    #[prost(message, optional, tag = "3")]
    pub process: Option<Process>,
    /// Whether it gets a terminal; the three streams below are then not asked for.
    #[prost(message, optional, tag = "4")]
    pub tty: Option<TerminalSize>,
    /// Whether it gets a stdin; otherwise that is empty.
    #[prost(bool, tag = "5")]
    pub stdin: bool,
    /// Whether its stdout is wanted.
    #[prost(bool, tag = "6")]
    pub stdout: bool,
    /// Whether its stderr is wanted.
    #[prost(bool, tag = "7")]
    pub stderr: bool,
}

/// The size of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct TerminalSize {
    /// Characters in a line.
    #[prost(uint32, tag = "1")]
    pub width: u32,
    /// Lines.
    #[prost(uint32, tag = "2")]
    pub height: u32,
}

/// Streams of a container to be connected to.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Attach {
    /// The container.
    #[prost(string, tag = "1")]
    pub container: String,
    /// Its stdin.
    #[prost(bool, tag = "2")]
    pub stdin: bool,
    /// Its stdout.
    #[prost(bool, tag = "3")]
    pub stdout: bool,
    /// Its stderr; a terminal has none.
    #[prost(bool, tag = "4")]
    pub stderr: bool,
}

/// Which streams came with the answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Attached {
    /// Whether the container's stdio is a terminal.
    #[prost(bool, tag = "1")]
    pub tty: bool,
    /// Stdin.
    #[prost(bool, tag = "2")]
    pub stdin: bool,
    /// Stdout.
    #[prost(bool, tag = "3")]
    pub stdout: bool,
    /// Stderr.
    #[prost(bool, tag = "4")]
    pub stderr: bool,
}

/// A signal to send.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Signal {
    /// The container.
    #[prost(string, tag = "1")]
    pub container: String,
    /// The command in it; 0: the container's first process.
    #[prost(uint64, tag = "2")]
    pub command: u64,
    /// The signal's number.
    #[prost(int32, tag = "3")]
    pub signal: i32,
    /// Whether it goes to everything in the container, or to everything that the command started.
    /// Then it is SIGKILL.
    #[prost(bool, tag = "4")]
    pub everything: bool,
}

/// A container, by its id.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Container {
    /// The id.
    #[prost(string, tag = "1")]
    pub container: String,
}

/// The size at which a container's log is rotated.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LogLimit {
    /// The container.
    #[prost(string, tag = "1")]
    pub container: String,
    /// In bytes; 0: never.
    #[prost(uint64, tag = "2")]
    pub max_size: u64,
}

/// A process that runs.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Started {
    /// It, on the node.
    #[prost(int32, tag = "1")]
    pub pid: i32,
    /// Since when, in nanoseconds since 1970.
    #[prost(int64, tag = "2")]
    pub started_at: i64,
}

/// What could not be done.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Failed {
    /// What was attempted: `mount volume`, `find user`.
    #[prost(string, tag = "1")]
    pub step: String,
    /// On what; may be empty.
    #[prost(string, tag = "2")]
    pub path: String,
    /// The kernel's number for why; 0 when it was not the kernel that refused.
    #[prost(int32, tag = "3")]
    pub errno: i32,
    /// Whether there is no such container or command.
    #[prost(bool, tag = "4")]
    pub not_found: bool,
}

/// An end.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Exited {
    /// The container.
    #[prost(string, tag = "1")]
    pub container: String,
    /// The command in it; 0: the container itself.
    #[prost(uint64, tag = "2")]
    pub command: u64,
    /// How.
    #[prost(message, optional, tag = "3")]
    pub exit: Option<Exit>,
}

/// Output that could not be written.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LogTrouble {
    /// The container.
    #[prost(string, tag = "1")]
    pub container: String,
    /// How many lines are lost, ever.
    #[prost(uint64, tag = "2")]
    pub lost_lines: u64,
    /// Why the last was.
    #[prost(int32, tag = "3")]
    pub errno: i32,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Kinds of today, and some of nobody's.
    fn kind() -> impl Strategy<Value = u16> {
        prop_oneof![0_u16..20, 98_u16..103, 198_u16..204, any::<u16>()]
    }

    /// A launch with something in its deeper parts, as a corpus for changes.
    fn launch() -> Vec<u8> {
        use crate::launch::{Device, Mount, Root, Source};
        let mount = Mount {
            target: "/data".into(),
            source: Some(Source::Path("/volumes/data".into())),
            ..Mount::default()
        };
        let spec = LaunchSpec {
            container: "web".into(),
            process: Some(Process { args: vec!["app".into()], ..Process::default() }),
            root: Some(Root { layers: vec!["/layers/a".into()], ..Root::default() }),
            mounts: vec![mount],
            devices: vec![Device { path: "/dev/null".into(), ..Device::default() }],
            ..LaunchSpec::default()
        };
        Request::Launch(Box::new(spec)).encode()
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(kind in kind(), bytes: Vec<u8>) {
            let _told = Request::decode(kind, &bytes);
            let _told = Answer::decode(kind, &bytes);
            let _told = Event::decode(kind, &bytes);
        }

        #[test]
        fn a_changed_message_is_read_or_refused(
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut bytes = launch();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(read) = Request::decode(3, &bytes) {
                // Whatever was read is the same when it is read again.
                prop_assert_eq!(Request::decode(3, &read.encode()), Ok(read));
            }
        }
    }

    #[test]
    fn messages_come_back_by_their_kind() {
        let signal = Signal { container: "web".into(), command: 7, signal: 15, everything: true };
        let request = Request::Signal(signal);
        assert_eq!(request.kind(), 6);
        assert_eq!(Request::decode(6, &request.encode()), Ok(request));
    }

    #[test]
    fn an_unknown_kind_and_a_broken_body_are_told_apart() {
        assert_eq!(Request::decode(10, &[]), Err(MessageError::Kind(10)));
        assert!(matches!(Request::decode(6, &[0xff]), Err(MessageError::Body { kind: 6, .. })));
    }

    #[test]
    fn fields_of_a_later_release_are_passed_over() {
        // Field 99, a varint of 1.
        let bytes = [0x98, 0x06, 0x01];
        assert_eq!(Request::decode(2, &bytes), Ok(Request::Snapshot(Empty {})));
    }
}
