//! The task that reads a connection until it ends.

use std::io;

use ferrolet_runtime_protocol::message::{Answer, Event, Exited};
use ferrolet_runtime_sys::channel::{self, Packet, ReceiveError};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::sync::mpsc;

use crate::connection::{CallError, Connection, Shared};

/// Events that wait for somebody to take them. What has no room is dropped: events are hints.
const N_EVENTS: usize = 1024;

/// Reads until the other side leaves, or the last handle is dropped and shuts the socket down.
pub(crate) fn start(connection: &Connection) -> mpsc::Receiver<Event> {
    let (sender, events) = mpsc::channel(N_EVENTS);
    let shared = connection.shared.clone();
    tokio::spawn(async move {
        read(&shared, &sender).await;
        let mut state = shared.state();
        state.is_over = true;
        // Those who wait see their sender go.
        state.calls.clear();
        state.commands.clear();
    });
    events
}

async fn read(shared: &Shared, events: &mpsc::Sender<Event>) {
    let mut buffer = vec![0; channel::BUFFER];
    loop {
        if shared.socket.readable().await.is_err() {
            return;
        }
        let received = shared.socket.try_io(Interest::READABLE, || {
            match channel::receive(&shared.socket, &mut buffer) {
                Err(ReceiveError::Socket(Errno::AGAIN)) => Err(io::ErrorKind::WouldBlock.into()),
                received => Ok(received),
            }
        });
        match received {
            Ok(Ok(packet)) => take(shared, packet, events),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // A packet that cannot be read means that the two no longer understand each other.
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

fn take(shared: &Shared, packet: Packet, events: &mpsc::Sender<Event>) {
    let Packet { header, body, descriptors } = packet;
    if header.id != 0 {
        let Some(call) = shared.state().calls.remove(&header.id) else { return };
        let reply = Answer::decode(header.kind, &body)
            .map(|answer| (answer, descriptors))
            .map_err(CallError::Answer);
        let _abandoned = call.send(reply);
        return;
    }
    match Event::decode(header.kind, &body) {
        Ok(Event::Exited(Exited { command, exit: Some(exit), .. })) if command != 0 => {
            if let Some(waiting) = shared.state().commands.remove(&command) {
                let _abandoned = waiting.send(exit);
            }
        }
        Ok(event) => {
            let _full = events.try_send(event);
        }
        // An event of a later release.
        Err(_) => {}
    }
}
