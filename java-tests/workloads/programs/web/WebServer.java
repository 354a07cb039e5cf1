import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;

/**
 * A shop on Tomcat, to measure what a request pays for a profiler: {@code /search} filters, groups and sorts products,
 * and answers with JSON of about 4 KB and a digest of it. Request number N always does the same work; it takes some 0.3
 * ms of CPU time once it is compiled.
 *
 * <p>Prints {@code port N} when it is ready, and ends when its standard input does.
 */
public final class WebServer {
    private static final int PRODUCTS = 1500;
    private static final int SHOWN = 40;

    private WebServer() {}

    static final class Product {
        final int id;
        final String name;
        final String family;
        final long cents;

        Product(int id) {
            this.id = id;
            this.name = "product " + Integer.toString(id * 7919 % 100003, 36);
            this.family = "family-" + id * 31 % 23;
            this.cents = 100 + id * 37L % 9973;
        }
    }

    /** Finds products whose name contains a digit that depends on the request's number, and writes the cheapest. */
    static final class Search extends HttpServlet {
        private static final long serialVersionUID = 1;

        private final transient List<Product> products = new ArrayList<>();
        private final AtomicLong requests = new AtomicLong();

        Search() {
            for (int id = 0; id < PRODUCTS; id++) {
                products.add(new Product(id));
            }
        }

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            long number = requests.getAndIncrement();
            Pattern wanted = Pattern.compile(".*" + Long.toString(number % 36, 36) + ".*");
            List<Product> found = products.stream()
                .filter(product -> wanted.matcher(product.name).matches())
                .sorted(Comparator.comparingLong((Product product) -> product.cents).thenComparing(product -> product.name))
                .collect(Collectors.toList());
            TreeMap<String, Long> turnover = found.stream()
                .collect(Collectors.groupingBy(product -> product.family, TreeMap::new,
                    Collectors.summingLong(product -> product.cents)));
            StringBuilder json = new StringBuilder("{\"found\":").append(found.size()).append(",\"products\":[");
            for (Product product : found.subList(0, Math.min(SHOWN, found.size()))) {
                json.append(String.format("{\"id\":%d,\"name\":\"%s\",\"price\":%d.%02d},", product.id, product.name,
                    product.cents / 100, product.cents % 100));
            }
            json.append("null],\"families\":\"").append(turnover).append("\"}");
            byte[] body = json.toString().getBytes(StandardCharsets.UTF_8);
            response.setContentType("application/json");
            response.setHeader("ETag", '"' + digest(body) + '"');
            response.setContentLength(body.length);
            response.getOutputStream().write(body);
        }

        private static String digest(byte[] body) {
            try {
                StringBuilder hexadecimal = new StringBuilder();
                for (byte part : MessageDigest.getInstance("SHA-256").digest(body)) {
                    hexadecimal.append(Character.forDigit(part >> 4 & 15, 16)).append(Character.forDigit(part & 15, 16));
                }
                return hexadecimal.toString();
            } catch (NoSuchAlgorithmException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** Counts requests by path, as an application's filters do. */
    static final class Counting implements Filter {
        private final TreeMap<String, Long> counts = new TreeMap<>();

        @Override
        public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
            synchronized (counts) {
                counts.merge(((HttpServletRequest) request).getRequestURI(), 1L, Long::sum);
            }
            chain.doFilter(request, response);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(Files.createTempDirectory("tickwalk-web-").toString());
        tomcat.setHostname("127.0.0.1");
        tomcat.setPort(0);
        Context context = tomcat.addContext("", null);
        Tomcat.addServlet(context, "search", new Search()).addMapping("/search");
        FilterDef filter = new FilterDef();
        filter.setFilterName("counting");
        filter.setFilter(new Counting());
        context.addFilterDef(filter);
        FilterMap everything = new FilterMap();
        everything.setFilterName("counting");
        everything.addURLPattern("/*");
        context.addFilterMap(everything);
        tomcat.getConnector();
        tomcat.start();
        System.out.println("port " + tomcat.getConnector().getLocalPort());
        while (System.in.read() >= 0) {
            // Input only says by its end that the server is to end.
        }
        tomcat.stop();
        tomcat.destroy();
    }
}
