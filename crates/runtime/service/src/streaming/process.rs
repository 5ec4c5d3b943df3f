//! A process's session: its stdio and a client's channels joined until the process ends or the client goes.
//!
//! A process that ended is heard out: its outputs until they end, or until nothing came for a moment, because somebody that
//! it left behind may hold them for ever. A client that goes takes its command with it: what is dropped here is closed.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};

use super::negotiate::StatusForm;
use super::pipe::Pipe;
use super::status::{self, Outcome};
use super::transport::{RESIZE, Reader, STATUS, STDERR, STDIN, STDOUT, Said, Writer};
use super::{Answer, Process, ProcessIo};

const PIECE: usize = 32 * 1024;
/// An output that says nothing for so long after the end of its process is over.
const SILENCE: Duration = Duration::from_secs(1);
/// A client that was told the end may take so long to hear it.
const GOODBYE: Duration = Duration::from_secs(2);
/// Sizes are a few dozen bytes each.
const LONGEST_SIZE: usize = 4096;

/// The near ends, on tokio.
#[derive(Default)]
struct Ends {
    stdin: Option<Pipe>,
    stdout: Option<Pipe>,
    stderr: Option<Pipe>,
    resize: Option<Pipe>,
}

fn ends(io: ProcessIo) -> io::Result<Ends> {
    Ok(match io {
        ProcessIo::Terminal(master) => {
            let master = Pipe::new(master)?;
            let (stdin, resize) = (Some(master.twin()?), Some(master.twin()?));
            Ends { stdin, stdout: Some(master), stderr: None, resize }
        }
        ProcessIo::Pipes { stdin, stdout, stderr, resize } => {
            let pipe = |it: Option<_>| it.map(Pipe::new).transpose();
            Ends {
                stdin: pipe(stdin)?,
                stdout: pipe(stdout)?,
                stderr: pipe(stderr)?,
                resize: pipe(resize)?,
            }
        }
    })
}

/// Joins a process, or the reason why there is none, and a client.
pub(super) async fn run<R, W>(
    process: Result<Process, String>,
    mut reader: Reader<R>,
    writer: Writer<W>,
    form: StatusForm,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let opened = process.and_then(|it| {
        let ends = ends(it.io).map_err(|error| format!("prepare streams: {error}"))?;
        Ok((ends, it.exit))
    });
    let (ends, exit) = match opened {
        Ok(opened) => opened,
        Err(why) => (Ends::default(), Some(failed(why))),
    };
    let Ends { stdin, stdout, stderr, resize } = ends;
    let outputs = [(stdout, STDOUT), (stderr, STDERR)];
    let mut listening = std::pin::pin!(listen(&mut reader, &writer, stdin, resize));
    let outcome = tokio::select! {
        outcome = attend(outputs, exit, &writer) => outcome,
        // The client went: there is nobody to tell.
        () = &mut listening => return writer.close().await,
    };
    let goodbye = async {
        let words = status::words(&outcome, form);
        let told = async {
            if !words.is_empty() {
                writer.send(STATUS, &words).await?;
            }
            writer.finish().await
        };
        // Bytes that nobody reads would turn our last words into a reset.
        if told.await.is_ok() {
            listening.await;
        }
    };
    let _ = timeout(GOODBYE, goodbye).await;
    writer.close().await;
}

type Exit = Answer<'static, Result<i32, String>>;

fn failed(why: String) -> Exit {
    Box::pin(std::future::ready(Err(why)))
}

/// Shows what a process says until its end.
async fn attend<W: AsyncWrite + Unpin>(
    outputs: [(Option<Pipe>, u8); 2],
    exit: Option<Exit>,
    writer: &Writer<W>,
) -> Outcome {
    let has_outputs = outputs.iter().any(|it| it.0.is_some());
    let heard = tokio::sync::watch::Sender::new(());
    let [out, err] = &outputs;
    let showing = async { tokio::join!(show(out, writer, &heard), show(err, writer, &heard)) };
    let mut showing = std::pin::pin!(showing);
    let Some(mut exit) = exit else {
        if !has_outputs {
            std::future::pending::<()>().await;
        }
        showing.await;
        return Outcome::Success;
    };
    let mut are_over = false;
    let exited = loop {
        tokio::select! {
            // Both are polled in place and go on after the other is done.
            exited = &mut exit => break exited,
            _ = &mut showing, if !are_over => are_over = true,
        }
    };
    let mut news = heard.subscribe();
    while !are_over {
        tokio::select! {
            _ = &mut showing => are_over = true,
            // A notice that is lost only makes the wait shorter by what was heard before it.
            _ = news.changed() => {}
            () = sleep(SILENCE) => break,
        }
    }
    match exited {
        Ok(0) => Outcome::Success,
        Ok(code) => Outcome::Exit(code),
        Err(why) => Outcome::Failure(why),
    }
}

async fn show<W: AsyncWrite + Unpin>(
    (output, channel): &(Option<Pipe>, u8),
    writer: &Writer<W>,
    heard: &tokio::sync::watch::Sender<()>,
) {
    let Some(output) = output else { return };
    let mut piece = vec![0; PIECE];
    loop {
        match output.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(n) => {
                heard.send_replace(());
                if writer.send(*channel, &piece[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Passes on what the client says until it goes.
async fn listen<R, W>(
    reader: &mut Reader<R>,
    writer: &Writer<W>,
    mut stdin: Option<Pipe>,
    resize: Option<Pipe>,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut sizes = Vec::new();
    loop {
        match reader.next(writer).await {
            Ok(Said::Data(STDIN)) => {
                if let Some(pipe) = &stdin
                    && pipe.write_all(reader.piece()).await.is_err()
                {
                    // The process reads no more; what comes now is for nobody.
                    stdin = None;
                }
            }
            Ok(Said::Data(RESIZE)) => {
                sizes.extend_from_slice(reader.piece());
                if let (Some((columns, rows)), Some(terminal)) = (last_size(&mut sizes), &resize) {
                    terminal.resize(columns, rows);
                }
            }
            Ok(Said::Ended(STDIN)) => stdin = None,
            Ok(Said::Closed) | Err(_) => return,
            Ok(Said::Data(_) | Said::Ended(_) | Said::Nothing) => {}
        }
    }
}

#[derive(serde::Deserialize)]
struct Size {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

/// The last whole size in these bytes; what is read is taken out, and what is none is thrown away.
fn last_size(bytes: &mut Vec<u8>) -> Option<(u16, u16)> {
    let mut sizes = serde_json::Deserializer::from_slice(bytes).into_iter::<Size>();
    let (mut last, mut n_read, mut is_wrong) = (None, 0, false);
    loop {
        match sizes.next() {
            Some(Ok(size)) => {
                last = Some((size.width, size.height));
                n_read = sizes.byte_offset();
            }
            Some(Err(error)) => {
                is_wrong = !error.is_eof();
                break;
            }
            None => {
                n_read = sizes.byte_offset();
                break;
            }
        }
    }
    bytes.drain(..n_read.min(bytes.len()));
    if is_wrong || bytes.len() > LONGEST_SIZE {
        bytes.clear();
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_in_pieces_and_in_numbers() {
        let mut bytes = br#"{"Width":80,"Height":24}{"Width":100,"Hei"#.to_vec();
        assert_eq!(last_size(&mut bytes), Some((80, 24)));
        bytes.extend_from_slice(b"ght\":30}\n");
        assert_eq!(last_size(&mut bytes), Some((100, 30)));
        assert!(bytes.is_empty());
        let mut wrong = b"{\"Width\":-1}".to_vec();
        assert_eq!(last_size(&mut wrong), None);
        assert!(wrong.is_empty());
        let mut endless = vec![b' '; LONGEST_SIZE + 10];
        endless.insert(0, b'{');
        assert_eq!(last_size(&mut endless), None);
        assert!(endless.is_empty());
    }
}
