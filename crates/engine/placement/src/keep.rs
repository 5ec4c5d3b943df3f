//! The two files of state: read once at start, written whenever somebody may have got or lost
//! something.

use ferrolet_placement::{
    Placement,
    checkpoint::{
        CheckpointError, decode_cpus, decode_memory, encode_cpus, encode_memory, encode_no_cpus,
        encode_no_memory,
    },
};
use ferrolet_ports::StateFiles;

use crate::Desk;

const CPU_FILE: &str = "cpu_manager_state";
const MEMORY_FILE: &str = "memory_manager_state";

/// Takes over what an earlier life wrote. What cannot be used is said and set aside, and pods get
/// something else when they are met again.
pub(crate) async fn load(placement: &mut Placement, files: &dyn StateFiles) {
    if let Some(cpus) = &mut placement.cpus
        && let Some((policy, written)) = read(files, CPU_FILE, decode_cpus).await
    {
        tell(CPU_FILE, cpus.restore(&policy, &written));
    }
    if let Some(memory) = &mut placement.memory
        && let Some((policy, written)) = read(files, MEMORY_FILE, decode_memory).await
    {
        tell(MEMORY_FILE, memory.restore(&policy, &written));
    }
}

fn tell(file: &str, notes: Vec<String>) {
    for note in notes {
        tracing::warn!(
            file,
            note,
            "State of an earlier life does not fit the node as it is now and is reconciled"
        );
    }
}

async fn read<T>(
    files: &dyn StateFiles,
    name: &str,
    decode: fn(&[u8]) -> Result<T, CheckpointError>,
) -> Option<T> {
    let content = match files.read(name).await {
        Ok(content) => content?,
        Err(error) => {
            tracing::error!(file = name, %error, "State of an earlier life cannot be read and begins anew");
            return None;
        }
    };
    match decode(&content) {
        Ok(written) => Some(written),
        Err(error) => {
            let aside = format!("{name}.unreadable");
            tracing::error!(file = name, %error, aside, "State of an earlier life cannot be used and begins anew");
            if let Err(error) = files.write(&aside, content).await {
                tracing::error!(%error, "The unreadable state cannot be kept");
            }
            None
        }
    }
}

/// Writes what changed, for ever. Cancel-safe between two writes; each replaces its file in one
/// step.
pub(crate) async fn keep(desk: &Desk, files: &dyn StateFiles) {
    let mut old = [Vec::new(), Vec::new()];
    loop {
        desk.changed.notified().await;
        let (version, contents) = {
            let state = desk.lock();
            let (cpus, memory) = (&state.placement.cpus, &state.placement.memory);
            let cpus = cpus.as_ref().map_or_else(encode_no_cpus, |it| encode_cpus(&it.assignments));
            let memory =
                memory.as_ref().map_or_else(encode_no_memory, |it| encode_memory(&it.assignments));
            (state.version, [(CPU_FILE, cpus), (MEMORY_FILE, memory)])
        };
        for ((name, content), old) in contents.into_iter().zip(&mut old) {
            if content == *old {
                continue;
            }
            match files.write(name, content.clone()).await {
                Ok(()) => *old = content,
                // Nobody waits for a disk that does not work; upstream goes on too.
                Err(error) => tracing::error!(file = name, %error, "State cannot be written"),
            }
        }
        desk.written.send_replace(version);
    }
}
