//! A small web server: files of a directory, one thread a connection, nothing above the directory.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// Connections at a time; more are closed at once.
const MOST: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_LINE: u64 = 8 * 1024;

static N_OPEN: AtomicUsize = AtomicUsize::new(0);

/// `httpd [-f] [-p PORT] [-h DIRECTORY]`; answers only if it cannot listen.
pub(crate) fn serve(words: &[String]) -> i32 {
    let (mut port, mut directory) = ("80".to_owned(), PathBuf::from("/www"));
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match (word.as_str(), words.len()) {
            ("-f" | "-v", _) => {}
            ("-p", 1..) => port = words.next().cloned().unwrap_or_default(),
            ("-h", 1..) => directory = words.next().map(PathBuf::from).unwrap_or_default(),
            _ => {
                eprintln!("httpd: usage: httpd [-f] [-p [ADDRESS:]PORT] [-h DIRECTORY]");
                return 2;
            }
        }
    }
    let Some(addresses) = addresses(&port) else {
        eprintln!("httpd: {port:?} is no port, and no address with one");
        return 2;
    };
    // A kernel without IPv6 has the other one.
    let listener = TcpListener::bind(addresses.as_slice());
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("httpd: listen on {port}: {error}");
            return 1;
        }
    };
    println!("httpd: listening on {port}, files of {}", directory.display());
    for connection in listener.incoming().flatten() {
        if N_OPEN.fetch_add(1, Ordering::Relaxed) >= MOST {
            N_OPEN.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let directory = directory.clone();
        thread::spawn(move || {
            if let Err(error) = answer(connection, &directory) {
                eprintln!("httpd: {error}");
            }
            N_OPEN.fetch_sub(1, Ordering::Relaxed);
        });
    }
    0
}

/// Where to listen: at an address, or at a port of all of them. Names are not looked up.
fn addresses(text: &str) -> Option<Vec<SocketAddr>> {
    if let Ok(address) = text.parse() {
        return Some(vec![address]);
    }
    let port: u16 = text.parse().ok()?;
    Some(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()])
}

fn answer(mut connection: TcpStream, directory: &Path) -> io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(io::Read::take(connection.try_clone()?, LONGEST_LINE));
    let mut first = String::new();
    reader.read_line(&mut first)?;
    // The rest of the head says nothing that matters here.
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let (status, body) = match (first.split(' ').next(), first.split(' ').nth(1)) {
        (Some("GET" | "HEAD"), Some(path)) => match find(directory, path) {
            Some(file) => ("200 OK", fs::read(file)?),
            None => ("404 Not Found", b"There is no such page.\n".to_vec()),
        },
        _ => ("400 Bad Request", b"GET is what can be asked here.\n".to_vec()),
    };
    println!("httpd: {} {status}", first.trim_end());
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    if !first.starts_with("HEAD") {
        connection.write_all(&body)?;
    }
    Ok(())
}

/// The file of a path, if it is one below the directory.
pub(crate) fn find(directory: &Path, path: &str) -> Option<PathBuf> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let path = if path.ends_with('/') { format!("{path}index.html") } else { path.to_owned() };
    let root = directory.canonicalize().ok()?;
    let file = root.join(path.trim_start_matches('/')).canonicalize().ok()?;
    (file.starts_with(&root) && file.is_file()).then_some(file)
}
