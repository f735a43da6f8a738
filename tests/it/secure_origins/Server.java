// A server by JSSE, which has neither the groups nor the extensions of the others.

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.util.*;
import javax.net.ssl.*;

public class Server {
    public static void main(String[] arguments) throws Exception {
        char[] password = "secret".toCharArray();
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream file = new FileInputStream(arguments[0])) {
            store.load(file, password);
        }
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(store, password);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        SSLServerSocket listener = (SSLServerSocket) context.getServerSocketFactory().createServerSocket(0);
        System.out.println(listener.getLocalPort() + " listening");
        while (true) {
            SSLSocket socket = (SSLSocket) listener.accept();
            Thread thread = new Thread(() -> {
                try (socket) {
                    serve(socket);
                } catch (IOException error) {
                    System.err.println(error);
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
    }

    static String line(InputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int next = in.read(); next >= 0 && next != '\n'; next = in.read()) {
            line.append((char) next);
        }
        return line.toString().trim();
    }

    static void say(OutputStream out, String text) throws IOException {
        out.write(text.getBytes(StandardCharsets.US_ASCII));
        out.flush();
    }

    static void serve(SSLSocket socket) throws IOException {
        InputStream in = new BufferedInputStream(socket.getInputStream());
        OutputStream out = new BufferedOutputStream(socket.getOutputStream());
        for (String request = line(in); !request.isEmpty(); request = line(in)) {
            Map<String, String> fields = new HashMap<>();
            for (String field = line(in); !field.isEmpty(); field = line(in)) {
                String[] parts = field.split(": ", 2);
                fields.put(parts[0].toLowerCase(), parts[1]);
            }
            switch (request.split(" ")[1]) {
                case "/length" -> say(out, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + "x".repeat(100000));
                case "/upload" -> {
                    long length = 0;
                    if (fields.containsKey("content-length")) {
                        length = in.readNBytes(Integer.parseInt(fields.get("content-length"))).length;
                    } else {
                        for (int size = Integer.parseInt(line(in), 16); size > 0; size = Integer.parseInt(line(in), 16)) {
                            length += in.readNBytes(size).length;
                            line(in);
                        }
                        line(in);
                    }
                    String text = Long.toString(length);
                    say(out, "HTTP/1.1 200 OK\r\nContent-Length: " + text.length() + "\r\n\r\n" + text);
                }
                case "/close" -> {
                    say(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + "x".repeat(100000));
                    return;
                }
                case "/socket" -> {
                    say(out, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n");
                    byte[] data = new byte[4096];
                    for (int length = in.read(data); length >= 0; length = in.read(data)) {
                        out.write(data, 0, length);
                        out.flush();
                    }
                    say(out, "bye");
                    return;
                }
                default -> say(out, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
            }
        }
    }
}
