//! An origin that says which replica it belongs to.

use anyhow::Result;
use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

/// Serves at `address` until the process is killed.
pub(super) fn serve(address: SocketAddr, name: &str) -> Result<bool> {
    let listener = TcpListener::bind(address)?;
    loop {
        let (stream, _) = listener.accept()?;
        let name = name.to_owned();
        // Ends with its connection.
        thread::spawn(move || connection(&stream, &name));
    }
}

fn connection(mut stream: &TcpStream, name: &str) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut request = String::new();
        reader.read_line(&mut request)?;
        let Some(path) = request.split(' ').nth(1) else { return Ok(()) };
        let mut field = String::new();
        while reader.read_line(&mut field)? > 2 {
            field.clear();
        }
        let body = match path.strip_prefix("/bytes/").and_then(|count| count.parse().ok()) {
            Some(count) => vec![b'.'; count],
            None => name.as_bytes().to_vec(),
        };
        write!(stream, "HTTP/1.1 200 OK\r\nX-Replica: {name}\r\nContent-Length: {}\r\n\r\n", body.len())?;
        stream.write_all(&body)?;
    }
}
