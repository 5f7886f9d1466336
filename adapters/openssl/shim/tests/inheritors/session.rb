# Sessions of TLS by Ruby: a client, a server in a thread, and a child by fork.
require "net/http"
require "openssl"
require "socket"

FOLDER, PORT = ARGV

def ask(port)
  http = Net::HTTP.new("localhost", port)
  http.use_ssl = true
  http.ca_file = "#{FOLDER}/ca.pem"
  agreed = nil
  answer = http.start do
    socket = http.instance_variable_get(:@socket).io
    agreed = [socket.ssl_version, socket.cipher, socket.peer_cert.subject.to_s]
    http.get("/")
  end
  [answer.code, answer.body, agreed]
end

puts "client: #{ask(PORT)}"
def context
  OpenSSL::SSL::SSLContext.new.tap do |context|
    certificate = OpenSSL::X509::Certificate.new(File.read("#{FOLDER}/localhost.pem"))
    context.add_certificate(certificate, OpenSSL::PKey.read(File.read("#{FOLDER}/localhost.key")))
  end
end

plain = TCPServer.new("127.0.0.1", 0)
server = OpenSSL::SSL::SSLServer.new(plain, context)
thread = Thread.new do
  8.times do
    client = server.accept
    nil until client.gets.strip.empty?
    client.write("HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello from Ruby")
    client.close
  end
end
threads = Array.new(8) { Thread.new { ask(plain.addr[1]) } }
puts "server: #{threads.map(&:value)}"
thread.join

# A server with one event loop and a callback, on whose stack Ruby looks for objects.
called_back = context
called_back.servername_cb = ->(_) { GC.start }
looping = Thread.new do
  left = 16
  accepted = []
  while left > 0
    ready, = IO.select([plain, *accepted])
    ready.each do |socket|
      if socket == plain
        accepted << OpenSSL::SSL::SSLSocket.new(plain.accept, called_back).tap { |client| client.sync_close = true }
      elsif socket.accept_nonblock(exception: false) == socket
        accepted.delete(socket)
        nil until socket.gets.strip.empty?
        socket.write("HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello from a loop")
        socket.close
        left -= 1
      end
    end
  end
end
threads = Array.new(16) { Thread.new { ask(plain.addr[1]) } }
puts "loop: #{threads.map(&:value)}"
looping.join
$stdout.flush
child = fork { puts "forked: #{ask(PORT)}" }
puts "status: #{Process.wait2(child)[1].exitstatus}"
